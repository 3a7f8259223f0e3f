/* SPDX-License-Identifier: Apache-2.0
 *
 * All that the daemon tells about itself, in one struct, and one table that says what each figure
 * is called: stats.json (stats.c) and the Prometheus text (metrics.c) are two ways to print it, so
 * they cannot differ. README.md lists the members for people; they are only ever added.
 */
#ifndef EXPERTFS_FIGURES_H
#define EXPERTFS_FIGURES_H

#include <stddef.h>
#include <stdint.h>

#include "expertfs/fs.h"
#include "expertfs/hotdir.h"
#include "expertfs/usage.h"

struct drive_figures {
	uint64_t number;          /* STORE_HOT_DRIVE: of --hot-dir */
	char *path;               /* owned */
	const char *state;        /* "ok", "failing", "missing" */
	const char *role;         /* "store", "hot" */
	struct drive_stats stats; /* all zero if it is missing */
	uint64_t in_flight;
	double gb_per_s; /* 1e9 bytes a second while it had something to do; 0: not known */
};

struct fs_figures {
	char *store; /* owned; this and the paths are valid UTF-8, as both texts must be */
	const char *mode, *io;
	double uptime_s;
	/* Memory: bytes, but for slots. */
	struct budget budget;
	uint64_t used, slots, huge_pages;
	uint64_t experts; /* in the store */
	struct hotstore_stats hot;
	double hit_rate, hit_rate_1m; /* 0..1; 0 if there was no open */
	uint64_t bytes_read;          /* from all drives */
	struct hotdir_stats hot_dir;  /* all zero without --hot-dir */
	struct usage_stats usage;
	uint64_t recording; /* usage.recording */
	uint32_t drives;
	struct drive_figures *drive; /* owned */
};

/* How a figure is stored, and how both texts print it. */
enum figure_type {
	COUNT, /* uint64_t */
	BOOL,  /* uint64_t, 0 or 1 */
	REAL,  /* double */
	MS,    /* double; milliseconds in stats.json, seconds in the metrics */
	GB     /* double; 1e9 bytes in stats.json, bytes in the metrics */
};

/* What Prometheus calls it. */
enum figure_kind { GAUGE, COUNTER, SUMMARY };

struct figure {
	const char *member; /* of stats.json, or of an object in drives[]: "memory.budget" */
	const char *metric; /* without "expertfs_"; several entries in a row may share one */
	const char *label;  /* which of them: "quantile=\"0.5\""; NULL: no label of its own */
	enum figure_kind kind;
	enum figure_type type;
	size_t offset;    /* in struct fs_figures or struct drive_figures */
	const char *help; /* empty but for the first of a metric */
};

/* In the order of printing; a NULL member at the end. */
extern const struct figure fs_figure_table[], drive_figure_table[];

/* The value at the figure's offset, as it is stored; counts are exact up to 2^53. */
double figure_value(const struct figure *f, const void *base);
/* Of a COUNT or BOOL, exact. */
uint64_t figure_count(const struct figure *f, const void *base);

/* Takes them all. Short locks only, one after the other, so figures of different parts may be of
 * moments some microseconds apart; those of the hot store are of one. 0 or -ENOMEM. */
int fs_figures_take(const struct fs *fs, struct fs_figures *f);
void fs_figures_free(struct fs_figures *f);

/* The texts; free() them. NULL: out of memory. */
char *figures_json(const struct fs_figures *f);
char *figures_metrics(const struct fs_figures *f);

#endif
