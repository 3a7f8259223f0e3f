/* SPDX-License-Identifier: Apache-2.0
 *
 * Start, service and end of a mount; see daemon.h.
 *
 * The mode is decided here: passthrough if we were not told otherwise, the kernel agreed in INIT,
 * and it takes a real backing file.
 */
#include "expertfs/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <mntent.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "expertfs/budget.h"
#include "expertfs/clock.h"
#include "expertfs/control.h"
#include "expertfs/fail.h"
#include "expertfs/hotdir.h"
#include "expertfs/log.h"
#include "expertfs/memory.h"
#include "expertfs/pressure.h"
#include "expertfs/respread.h"
#include "expertfs/select.h"
#include "expertfs/usage.h"

#define OTHER_THREADS 8    /* a drive each, pool, usage, moves, hot drive, pressure */
#define GRACE_MS      3000 /* after a signal, for readers in the middle of a read */

static int request_threads(void)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	return cpus < 4 ? 4 : cpus > 8 ? 8 : (int)cpus;
}

/* True if path is a mount point of ours right now. */
static bool is_mounted(const char *path)
{
	FILE *f = setmntent("/proc/self/mounts", "re");
	const struct mntent *m;
	bool found = false;

	while (f && !found && (m = getmntent(f)))
		found = strcmp(m->mnt_dir, path) == 0 && strcmp(m->mnt_type, "fuse.expertfs") == 0;
	if (f)
		endmntent(f);
	return found;
}

/* Whether path is dir or lies below it; both without links. */
static bool lies_in(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	return strncmp(path, dir, n) == 0 && (path[n] == '/' || path[n] == 0 || n == 1);
}

/* What we open by its path while it is mounted: through our own mount it could not be had, or, before
 * requests are served, never. */
static int check_hidden(const char *mountpoint, const char *real, const struct store *s,
			const char *hot_dir, char *why)
{
	char *hot = hot_dir ? realpath(hot_dir, NULL) : NULL, *shard;
	int err = 0;

	if (lies_in(s->dir, real))
		err = fail(why, EINVAL, "%s would hide the store %s: mount elsewhere", mountpoint,
			   s->dir);
	else if (hot && lies_in(hot, real))
		err = fail(why, EINVAL, "%s would hide --hot-dir %s: mount elsewhere", mountpoint,
			   hot_dir);
	free(hot);
	for (uint32_t i = 0; i < s->drives && !err; i++) {
		shard = s->drive[i].path ? realpath(s->drive[i].path, NULL) : NULL;
		if (shard && lies_in(shard, real))
			err = fail(why, EINVAL, "%s would hide %s: mount elsewhere", mountpoint,
				   s->drive[i].path);
		free(shard);
	}
	return err;
}

int daemon_check_mountpoint(const char *mountpoint, const struct store *s, const char *hot_dir,
			    char *why)
{
	struct stat st;
	int err = 0;
	/* Not stat(): the kernel answers that from its cache when the daemon is long dead. */
	int fd = open(mountpoint, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0 && (errno == ENOTCONN || errno == ECONNABORTED))
		return fail(why, errno,
			    "%s is the dead mount of a daemon that was killed: umount %s first",
			    mountpoint, mountpoint);
	if (fd >= 0)
		close(fd);
	char *real = realpath(mountpoint, NULL);
	if (!real)
		return fail(why, errno, "%s: %s", mountpoint, strerror(errno));
	if (stat(real, &st) != 0)
		err = fail(why, errno, "%s: %s", mountpoint, strerror(errno));
	else if (!S_ISDIR(st.st_mode))
		err = fail(why, ENOTDIR, "%s is not a folder", mountpoint);
	else if (is_mounted(real))
		err = fail(why, EBUSY, "%s is mounted already: umount %s first", mountpoint,
			   mountpoint);
	else
		err = check_hidden(mountpoint, real, s, hot_dir, why);
	free(real);
	return err;
}

static int open_drives(struct fs *fs, enum drive_io io, enum verify verify, char *why)
{
	int err = 0;

	fs->drive = calloc(STORE_DRIVES_MAX + 1, sizeof(struct drive *));
	fs->read_buffers = read_buffers_new(fs->store->max_expert_bytes);
	if (!fs->drive || !fs->read_buffers)
		return fail(why, ENOMEM, "out of memory");
	for (uint32_t i = 0; !err && i < fs->store->drives; i++) {
		if (!fs->store->drive[i].path || fs->store->drive[i].missing)
			continue;
		err = drive_open(fs->store->drive[i].path, io, &fs->drive[i], why);
		if (!err)
			read_buffers_register(fs->read_buffers, fs->drive[i]);
	}
	fs->loader = (struct loader){ .store = fs->store,
				      .drive = fs->drive,
				      .buffers = fs->read_buffers,
				      .verify = verify };
	return err;
}

static int open_files(struct fs *fs, char *why)
{
	char path[PATH_MAX], name[STORE_NAME_ROOM];

	for (uint32_t i = 0; i < fs->store->files; i++) {
		snprintf(path, sizeof(path), "%s/%s", fs->store->dir, store_file_name(i, name));
		fs->file[i].fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fs->file[i].fd < 0)
			return fail(why, errno, "%s: %s", path, strerror(errno));
	}
	return 0;
}

/* The proof that passthrough works here: the kernel registers memory of the kind that experts lie
 * in. */
static int try_backing(const struct fs *fs)
{
	struct backing b;
	int err = backing_new(fs->source, SHARD_ALIGN, &b);

	if (err)
		return err;
	err = backing_freeze(fs->source, &b, false);
	err = err ? err : backing_register(fs->source, &b, session_fd(fs->session));
	backing_drop(&b, session_fd(fs->session));
	return err;
}

static int no_passthrough(int err, char *why)
{
	return fail(why, -err,
		    "passthrough is not to be had here (%s): it needs Linux 6.9 and root; --mode "
		    "direct "
		    "works without",
		    err == -ENOSYS ? "the kernel does not offer it" : strerror(-err));
}

static int choose_mode(struct fs *fs, enum serve_mode mode, char *why)
{
	int err = mode == MODE_DIRECT                ? -EOPNOTSUPP
		  : session_passthrough(fs->session) ? 0
						     : -ENOSYS;

	err = err ? err : try_backing(fs);
	if (mode == MODE_PASSTHROUGH && err)
		return no_passthrough(err, why);
	fs->passthrough = err == 0;
	if (err && mode == MODE_AUTO)
		log_line(LOG_WARNING,
			 "no passthrough (needs Linux 6.9 and root): hits are copied, mode direct");
	for (uint32_t i = 0; fs->passthrough && i < fs->store->files; i++) {
		char name[STORE_NAME_ROOM];
		int32_t id = backing_id_open(session_fd(fs->session), fs->file[i].fd);
		if (id > 0)
			fs->file[i].backing_id = id;
		else
			log_line(LOG_WARNING,
				 "%s: no passthrough (%s), read through the page cache",
				 store_file_name(i, name), strerror(-id));
	}
	return 0;
}

static int start_hotstore(struct fs *fs, char *why)
{
	const struct hotstore_config cfg = { .loader = &fs->loader,
					     .policy = fs->policy,
					     .source = fs->source,
					     .capacity = fs->budget.capacity,
					     .fuse_fd = session_fd(fs->session),
					     .passthrough = fs->passthrough,
					     .opened = fs_expert_opened };

	backing_source_limit(fs->source, fs->budget.capacity);
	return hotstore_create(&cfg, &fs->hot, why);
}

bool fs_uses_uring(const struct fs *fs)
{
	for (uint32_t i = 0; i < fs->store->drives; i++)
		if (fs->drive[i])
			return drive_uses_uring(fs->drive[i]);
	return false;
}

static int select_for_move(void *arg, const char *word,
			   void (*each)(void *each_arg, uint32_t index), void *each_arg, char *why)
{
	const struct fs *fs = arg;

	return select_experts(fs->store, fs->hot, word, each, each_arg, why);
}

/* The hot drive is read before we have it: what is found bad until then is found again. */
static void on_hot_bad(void *arg, uint32_t index)
{
	const struct fs *fs = arg;
	struct hotdir *h = __atomic_load_n(&fs->hotdir, __ATOMIC_ACQUIRE);

	if (h)
		hotdir_bad(h, index);
}

/* What works behind the requests: usage, moves, the hot drive, the eye on memory. */
static int start_background(struct fs *fs, const struct options *o, char *why)
{
	const struct usage_config uc = { .store = fs->store,
					 .hot = fs->hot,
					 .no_warm_start = o->no_warm };
	const struct respread_config rc = { .store = fs->store,
					    .loader = &fs->loader,
					    .io = o->io,
					    .lock = fs->store_lock,
					    .select = select_for_move,
					    .select_arg = fs };
	const struct hotdir_config hc = { .store = fs->store,
					  .loader = &fs->loader,
					  .hot = fs->hot,
					  .folder = o->hot_dir,
					  .bytes = o->hot_dir_size,
					  .io = o->io };
	struct hotdir *hotdir = NULL;
	int err;

	if (o->hot_dir) {
		fs->loader.hot_bad = on_hot_bad;
		fs->loader.hot_arg = fs;
	}
	err = usage_start(&uc, &fs->usage, why);
	if (!err && o->hot_dir) /* it counts the loads from what usage knows on */
		err = hotdir_open(&hc, &hotdir, why);
	__atomic_store_n(&fs->hotdir, hotdir, __ATOMIC_RELEASE);
	err = err ? err : respread_start(&rc, &fs->respread, why);
	if (err)
		return err;
	fs->pressure = pressure_start(fs->hot, fs->usage, fs->budget.capacity);
	return fs->pressure ? 0 : fail(why, ENOMEM, "cannot start a thread");
}

static void say_started(const struct fs *fs, const struct options *o)
{
	uint32_t drives = 0;
	char text[512];

	for (uint32_t i = 0; i < fs->store->drives; i++)
		drives += fs->drive[i] != NULL;
	budget_text(&fs->budget, fs->store, fs->source, text, sizeof(text));
	log_line(LOG_INFO, "%s", text);
	log_line(LOG_INFO, "%s on %s: mode %s, policy %s, %u experts on %u drive%s, %s",
		 store_name(fs->store), o->mountpoint, fs->passthrough ? "passthrough" : "direct",
		 fs->policy, fs->store->experts, drives, drives == 1 ? "" : "s",
		 fs_uses_uring(fs) ? "io_uring" : "read threads");
}

static int start_parts(struct fs *fs, const struct options *o, char *why)
{
	struct session_options so = { .source = store_name(fs->store),
				      .mountpoint = o->mountpoint,
				      .want_passthrough = o->mode != MODE_DIRECT,
				      .allow_other = o->allow_other };
	uint64_t asked =
		o->memory_percent ? memory_available() / 100 * o->memory_percent : o->memory;
	int err, threads = request_threads();

	fs->source = backing_source_open(fs->store->max_expert_bytes, fs->store->experts);
	fs->inodes = inode_table_new(fs->store);
	if (!fs->source || !fs->inodes)
		return fail(why, ENOMEM, "out of memory");
	if (o->mode == MODE_PASSTHROUGH && geteuid() != 0)
		return no_passthrough(-EPERM, why);
	err = budget_make(asked, fs->store, fs->source, threads + LOADERS + OTHER_THREADS,
			  o->hot_dir != NULL, &fs->budget, why);
	err = err ? err : open_files(fs, why);
	err = err ? err : open_drives(fs, o->io, o->verify, why);
	err = err ? err : session_mount(&so, &fs_ops, fs, &fs->session, why);
	err = err ? err : choose_mode(fs, o->mode, why);
	err = err ? err : start_hotstore(fs, why);
	err = err ? err : start_background(fs, o, why);
	err = err ? err : session_start(fs->session, threads, why);
	return err;
}

static int check_policy(const char *spec, char *why)
{
	char list[512] = "";
	int err = cp_spec_check(spec);

	for (const char *const *name = cp_policy_names(); *name; name++) {
		size_t n = strlen(list);
		snprintf(list + n, sizeof(list) - n, "%s%s", n ? ", " : "", *name);
	}
	if (err == -ENOENT)
		return fail(why, EINVAL, "--policy %s: there is no such policy; there are %s", spec,
			    list);
	return err ? fail(why, EINVAL, "--policy %s: not a parameter of it, or out of its range",
			  spec)
		   : 0;
}

int daemon_start(const struct options *o, struct store *s, int lock, struct fs **out, char *why)
{
	struct fs *fs = calloc(1, sizeof(*fs));
	int err;

	if (fs)
		fs->file = calloc(s->files, sizeof(*fs->file));
	if (!fs || !fs->file) {
		free(fs);
		store_close(s);
		close(lock);
		return fail(why, ENOMEM, "out of memory");
	}
	fs->store = s;
	fs->store_lock = lock;
	pthread_mutex_init(&fs->trace_lock, NULL);
	for (uint32_t i = 0; i < s->files; i++)
		fs->file[i].fd = -1;
	fs->started_ns = clock_ns();
	fs->policy = o->policy;
	err = check_policy(o->policy, why);
	err = err ? err : start_parts(fs, o, why);
	if (err) {
		daemon_stop(fs);
		return err;
	}
	say_started(fs, o);
	*out = fs;
	return 0;
}

void daemon_serve(struct fs *fs)
{
	struct pollfd p[2] = { { .events = POLLIN }, { .events = POLLIN } };
	struct signalfd_siginfo si;
	sigset_t set;
	int timeout = -1, n;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	p[0].fd = session_ended_fd(fs->session);
	p[1].fd = signalfd(-1, &set, SFD_CLOEXEC);
	for (;;) {
		n = poll(p, 2, timeout);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0 || p[0].revents)
			break;
		if (read(p[1].fd, &si, sizeof(si)) != (ssize_t)sizeof(si) || timeout >= 0)
			break;
		log_line(LOG_INFO, "signal %u: unmounting", si.ssi_signo);
		session_unmount(fs->session);
		timeout = GRACE_MS;
	}
	if (p[1].fd >= 0)
		close(p[1].fd);
	log_line(LOG_INFO, "unmounted");
}

void daemon_stop(struct fs *fs)
{
	if (!fs)
		return;
	session_stop(fs->session);
	control_stop_trace(fs);
	pressure_stop(fs->pressure);
	respread_stop(fs->respread);
	hotdir_stop(fs->hotdir); /* it asks the hot store */
	usage_stop(fs->usage);
	hotstore_destroy(fs->hot); /* answers who still waits, so before the connection goes */
	for (uint32_t i = 0; i < fs->store->files; i++) {
		if (fs->file[i].backing_id)
			backing_id_close(session_fd(fs->session), fs->file[i].backing_id);
		if (fs->file[i].fd >= 0)
			close(fs->file[i].fd);
	}
	session_close(fs->session);
	hotdir_close(fs->hotdir);
	for (uint32_t i = 0; fs->drive && i <= STORE_DRIVES_MAX; i++)
		drive_close(fs->drive[i]);
	free(fs->drive);
	backing_source_close(fs->source);
	inode_table_free(fs->inodes);
	store_close(fs->store);
	pthread_mutex_destroy(&fs->trace_lock);
	close(fs->store_lock);
	read_buffers_free(fs->read_buffers);
	free(fs->file);
	free(fs);
}
