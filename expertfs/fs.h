/* SPDX-License-Identifier: Apache-2.0
 *
 * What the parts of a running daemon share. Made by daemon.c; read by the FUSE operations (ops.c)
 * and the statistics (stats.c) from many threads, so nothing here changes after the start but what
 * has a lock of its own behind its pointer.
 */
#ifndef EXPERTFS_FS_H
#define EXPERTFS_FS_H

#include <stdbool.h>
#include <stdint.h>

#include "expertfs/backing.h"
#include "expertfs/drive.h"
#include "expertfs/hotstore.h"
#include "expertfs/inode.h"
#include "expertfs/session.h"
#include "expertfs/store.h"

/* Where the memory goes; see budget.h. Bytes. */
struct budget {
	uint64_t total;     /* --memory */
	uint64_t tables;    /* what is known of each expert */
	uint64_t threads;   /* their stacks and request buffers */
	uint64_t buffers;   /* for reads of experts that are not kept */
	uint64_t usage;     /* for writing it to the catalog */
	uint64_t moving;    /* of an expert on its way to another drive */
	uint64_t hot_drive; /* --hot-dir */
	uint64_t fixed;     /* all of these */
	uint64_t capacity;  /* hot store: what is left. May shrink and grow back (pressure.h) */
	uint64_t needed;    /* what can come to be used: less than total if all experts take less */
	uint64_t available; /* what machine and cgroup had at start */
	uint32_t slots; /* experts of mean size that the capacity holds, at most all there are */
};

/* A file of the store that is shown as it is. */
struct store_file {
	int fd;
	int32_t backing_id; /* 0: served through the page cache of the mount */
};

struct fs {
	struct session *session; /* first: session.h */
	struct store *store;
	struct inode_table *inodes;
	struct drive **drive;              /* STORE_DRIVES_MAX + 1; NULL: none, or missing */
	struct loader loader;              /* of store and drive */
	struct read_buffers *read_buffers; /* for loader */
	struct backing_source *source;
	struct hotstore *hot;
	struct usage *usage;
	struct respread *respread;
	struct hotdir *hotdir; /* NULL: no --hot-dir */
	struct pressure *pressure;
	int store_lock;        /* storelock.h, STORE_SERVED */
	struct tracer *tracer; /* NULL: no trace is being recorded; with trace_lock */
	bool trace_busy;       /* one is being begun or ended; likewise */
	pthread_mutex_t trace_lock;
	struct store_file *file; /* store->files */
	struct budget budget;
	const char *policy; /* at start */
	bool passthrough;
	uint64_t started_ns; /* CLOCK_MONOTONIC */
};

/* ops.c */
extern const struct fuse_lowlevel_ops fs_ops;
/* Answers the open that waits; hotstore_config.opened. who is the fuse_req_t. */
void fs_expert_opened(void *who, const struct hot_open *o);

/* daemon.c: how the drives are read. */
bool fs_uses_uring(const struct fs *fs);

/* stats.c: stats.json as text; free() it. NULL: out of memory. */
char *fs_stats_json(const struct fs *fs);

#endif
