/* SPDX-License-Identifier: Apache-2.0
 *
 * expertfs: mounts a store. Options, the step into the background, exit status.
 *
 * The parent of a background daemon waits until the mount answers requests, and passes a failure
 * on: after `expertfs STORE MNT` returned 0, MNT can be used.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "expertfs/daemon.h"
#include "expertfs/fail.h"
#include "expertfs/gguf.h"
#include "expertfs/gguf_store.h"
#include "expertfs/log.h"
#include "expertfs/notify.h"
#include "expertfs/rebuild.h"

/* Forks. The child returns the descriptor to say "ready" on; the parent never returns. */
static int to_background(void)
{
	int p[2];
	char c;
	pid_t pid;

	if (pipe2(p, O_CLOEXEC) != 0 || (pid = fork()) < 0) {
		log_line(LOG_ERR, "cannot start in the background: %s", strerror(errno));
		exit(1);
	}
	if (pid == 0) {
		close(p[0]);
		setsid();
		if (chdir("/") != 0)
			log_line(LOG_WARNING, "/: %s", strerror(errno));
		return p[1];
	}
	close(p[1]);
	/* Nothing to read: the child ended without the word, and has said why. */
	_exit(read(p[0], &c, 1) == 1 ? 0 : 1);
}

static void detach(int ready)
{
	int null = open("/dev/null", O_RDWR);
	ssize_t n;

	log_to_syslog();
	for (int fd = 0; null >= 0 && fd < 3; fd++)
		dup2(null, fd);
	if (null > 2)
		close(null);
	n = write(ready, "r", 1);
	(void)n; /* a parent that is gone does not wait either */
	close(ready);
}

/* Descriptors 0 to 2 must be taken, or a drive's file might become stderr. */
static void fill_standard_files(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd < 3);
	if (fd > 2)
		close(fd);
}

static void block_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN); /* a limit on files' sizes is an error, as a full drive is */
}

int main(int argc, char **argv)
{
	struct options o;
	struct store *store;
	struct fs *fs;
	char why[WHY_MAX], *mountpoint, *hot_dir;
	int err, ready = -1, lock;

	fill_standard_files();
	err = options_parse(argc, argv, &o, why);
	if (err > 0)
		return 0;
	if (err) {
		log_line(LOG_ERR, "%s", why);
		return 2;
	}
	err = gguf_is(o.store) ? gguf_store_open(o.store, o.state, &store, &lock, why)
			       : store_open_or_rebuild(o.store, &store, &lock, why);
	if (!err && o.state && !store->gguf) {
		err = fail(why, EINVAL,
			   "--state is for a GGUF file: what is learned of the store %s "
			   "lies in it",
			   o.store);
		store_close(store);
	}
	if (!err && store->lost && !o.degraded) {
		err = -ENOENT; /* why says which shard is not there */
		store_close(store);
	}
	if (!err && why[0])
		log_line(LOG_WARNING, "%s", why);
	if (!err && (err = daemon_check_mountpoint(o.mountpoint, store, o.hot_dir, why)) != 0)
		store_close(store);
	if (err) {
		log_line(LOG_ERR, "%s", why);
		return 1;
	}
	/* Before the chdir of the background. */
	mountpoint = realpath(o.mountpoint, NULL);
	hot_dir = o.hot_dir ? realpath(o.hot_dir, NULL) : NULL;
	if (mountpoint)
		o.mountpoint = mountpoint;
	if (hot_dir)
		o.hot_dir = hot_dir;
	block_signals();
	if (!o.foreground)
		ready = to_background();
	err = daemon_start(&o, store, lock, &fs, why);
	if (err) {
		log_line(LOG_ERR, "%s", why);
	} else {
		if (ready >= 0)
			detach(ready);
		if (o.foreground && notify_manager("READY=1") != 0)
			log_line(LOG_WARNING, "the service manager cannot be told: %s",
				 getenv("NOTIFY_SOCKET"));
		daemon_serve(fs);
		if (o.foreground)
			notify_manager("STOPPING=1");
		daemon_stop(fs);
	}
	free(mountpoint);
	free(hot_dir);
	return err ? 1 : 0;
}
