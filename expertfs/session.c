/* SPDX-License-Identifier: Apache-2.0
 *
 * Mounting, INIT and the request threads; see session.h.
 */
#include "expertfs/session.h"

#include <errno.h>
#include <fcntl.h>
#include <fuse_log.h>
#include <poll.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "expertfs/fail.h"
#include "expertfs/fuse_abi.h"

#define THREADS_MAX  16
#define INIT_TIMEOUT 10000 /* ms for the kernel's first request; it comes at once */

struct session {
	struct session_options opt;
	char *mountpoint;
	struct fuse_session *fuse;
	int fd;         /* the device */
	int stop;       /* eventfd: threads, leave */
	int ended;      /* eventfd: the kernel has ended the connection */
	bool own_mount; /* mounted by us, not by fusermount3 */
	bool mounted;
	dev_t dev; /* of what was mounted: nobody else has it while the connection lasts */
	_Atomic bool
		gone; /* the kernel ended the connection: what is mounted there now is not ours */
	bool initialised;
	uint64_t init_unique;       /* of the INIT request under way, 0 otherwise */
	uint32_t offered2, agreed2; /* flags2 of INIT */
	pthread_t thread[THREADS_MAX];
	int threads;
};

/* Watches for INIT and remembers what the kernel offers. */
static ssize_t on_read(int fd, void *buf, size_t size, void *userdata)
{
	struct session *s = *(struct session **)userdata;
	ssize_t n = read(fd, buf, size);
	struct abi_in_header h;
	struct abi_init_in init;

	/* A connection that ends under a reader is an end like any other; libfuse would print it. */
	if (n < 0 && errno == ECONNABORTED)
		errno = ENODEV;
	if (s->initialised || n < (ssize_t)(sizeof(h) + sizeof(init)))
		return n;
	memcpy(&h, buf, sizeof(h));
	memcpy(&init, (char *)buf + sizeof(h), sizeof(init));
	if (h.opcode == ABI_OP_INIT) {
		s->init_unique = h.unique;
		s->offered2 = init.flags & ABI_INIT_EXT ? init.flags2 : 0;
	}
	return n;
}

/* The reply to INIT goes out with our flags added; every other reply as it is. */
static ssize_t on_writev(int fd, struct iovec *iov, int count, void *userdata)
{
	struct session *s = *(struct session **)userdata;
	struct abi_out_header h;
	struct abi_init_out init;
	ssize_t n;

	memcpy(&h, iov[0].iov_base, sizeof(h));
	if (!s->init_unique || h.unique != s->init_unique || h.error || count != 2 ||
	    iov[1].iov_len != sizeof(init))
		return writev(fd, iov, count);
	memcpy(&init, iov[1].iov_base, sizeof(init));
	/* A shared mapping of a direct file keeps the inode from passthrough (EIO at the next
	 * open), so it is allowed only where passthrough is not. */
	s->agreed2 = s->offered2 & (s->opt.want_passthrough && (s->offered2 & ABI2_PASSTHROUGH)
					    ? ABI2_PASSTHROUGH
					    : ABI2_DIRECT_ALLOW_MMAP);
	if (s->agreed2) {
		init.flags |= ABI_INIT_EXT;
		init.flags2 |= s->agreed2;
	}
	if (s->agreed2 & ABI2_PASSTHROUGH)
		init.max_stack_depth = 2; /* a store on overlayfs (a container) works, too */
	memcpy(iov[1].iov_base, &init, sizeof(init));
	n = writev(fd, iov, count);
	s->init_unique = 0;
	return n;
}

static int mount_ourselves(struct session *s, char *why)
{
	const unsigned long flags = MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_NOATIME;
	static const struct fuse_custom_io io = { .writev = on_writev, .read = on_read };
	char options[256];
	int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0)
		return fail(why, errno, "/dev/fuse: %s%s", strerror(errno),
			    errno == ENOENT ? "; load the module: modprobe fuse" : "");
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=%u,group_id=%u%s", fd,
		 getuid(), getgid(), s->opt.allow_other ? ",allow_other,default_permissions" : "");
	if (fuse_session_custom_io(s->fuse, &io, fd) != 0) {
		close(fd);
		return fail(why, EIO, "libfuse does not take our own input and output");
	}
	s->fd = fd; /* libfuse closes it from here on */
	if (mount(s->opt.source, s->mountpoint, "fuse.expertfs", flags, options) != 0)
		return fail(why, errno, "cannot mount on %s: %s", s->mountpoint, strerror(errno));
	s->own_mount = s->mounted = true;
	return 0;
}

/* What libfuse says of itself: kept for our own sentence instead of going to stderr. */
static char libfuse_said[256];

__attribute__((format(printf, 2, 0))) static void on_libfuse_log(enum fuse_log_level level,
								 const char *fmt, va_list ap)
{
	(void)level;
	vsnprintf(libfuse_said, sizeof(libfuse_said), fmt, ap);
	libfuse_said[strcspn(libfuse_said, "\n")] = 0;
}

static int mount_by_helper(struct session *s, char *why)
{
	if (fuse_session_mount(s->fuse, s->mountpoint) != 0)
		return fail(why, EPERM, "cannot mount on %s: %s", s->mountpoint,
			    libfuse_said[0] ? libfuse_said : "fusermount3 said why");
	s->mounted = true;
	s->fd = fuse_session_fd(s->fuse);
	if (fcntl(s->fd, F_SETFL, fcntl(s->fd, F_GETFL) | O_NONBLOCK) != 0)
		return fail(why, errno, "%s: %s", s->mountpoint, strerror(errno));
	return 0;
}

/* Takes one request and serves it. 0, 1 when the connection has ended. */
static int serve_one(struct session *s, struct fuse_buf *buf)
{
	int n = fuse_session_receive_buf(s->fuse, buf);

	if (n == -EINTR || n == -EAGAIN)
		return 0; /* another thread was quicker */
	if (n <= 0)
		return 1;
	fuse_session_process_buf(s->fuse, buf);
	return 0;
}

/* The device of what lies at the path now; 0 if that cannot be known. Asks no daemon. */
static dev_t device_at(const char *path)
{
	struct statx st;

	if (statx(AT_FDCWD, path, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT | AT_SYMLINK_NOFOLLOW, 0,
		  &st) != 0)
		return 0;
	return makedev(st.stx_dev_major, st.stx_dev_minor);
}

/* Request threads start only after INIT: its reply decides the mode. */
static int serve_init(struct session *s, char *why)
{
	struct fuse_buf buf = { 0 };
	struct pollfd p = { .fd = s->fd, .events = POLLIN };
	int err = 0;

	if (poll(&p, 1, INIT_TIMEOUT) != 1)
		err = fail(why, ETIMEDOUT, "%s: the kernel sends no INIT", s->mountpoint);
	else if (serve_one(s, &buf) != 0)
		err = fail(why, EIO, "%s: the kernel refused the connection", s->mountpoint);
	free(buf.mem);
	s->initialised = true;
	return err;
}

static struct fuse_session *new_fuse(const struct session_options *o, bool root,
				     const struct fuse_lowlevel_ops *ops, void *userdata)
{
	struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
	struct fuse_session *fuse = NULL;
	char fsname[4200];

	snprintf(fsname, sizeof(fsname), "-onoatime,nosuid,nodev,noexec,subtype=expertfs,fsname=%s",
		 o->source);
	for (char *c = strstr(fsname, "fsname=") + 7; *c; c++)
		if (*c == ',' || *c == '\\')
			*c = '?'; /* separators in libfuse's option language */
	if (fuse_opt_add_arg(&args, "expertfs") == 0 &&
	    (root || fuse_opt_add_arg(&args, fsname) == 0) &&
	    (root || !o->allow_other ||
	     fuse_opt_add_arg(&args, "-oallow_other,default_permissions") == 0))
		fuse = fuse_session_new(&args, ops, sizeof(*ops), userdata);
	fuse_opt_free_args(&args);
	return fuse;
}

int session_mount(const struct session_options *o, const struct fuse_lowlevel_ops *ops,
		  void *userdata, struct session **out, char *why)
{
	bool root = geteuid() == 0;
	struct session *s = calloc(1, sizeof(*s));
	int err;

	if (!s)
		return fail(why, ENOMEM, "out of memory");
	*out = s; /* on_read() and on_writev() need it during INIT */
	fuse_set_log_func(on_libfuse_log);
	s->opt = *o;
	s->fd = -1;
	s->stop = eventfd(0, EFD_CLOEXEC);
	s->ended = eventfd(0, EFD_CLOEXEC);
	s->mountpoint = realpath(o->mountpoint, NULL);
	s->fuse = new_fuse(o, root, ops, userdata);
	if (s->stop < 0 || s->ended < 0 || !s->mountpoint || !s->fuse)
		err = fail(why, ENOMEM, "cannot set up a FUSE session for %s", o->mountpoint);
	else if ((err = root ? mount_ourselves(s, why) : mount_by_helper(s, why)) == 0)
		s->dev = device_at(s->mountpoint);
	err = err ? err : serve_init(s, why);
	if (err) {
		session_close(s);
		*out = NULL;
	}
	return err;
}

int session_fd(const struct session *s)
{
	return s->fd;
}

bool session_passthrough(const struct session *s)
{
	return s->agreed2 & ABI2_PASSTHROUGH;
}

int session_ended_fd(const struct session *s)
{
	return s->ended;
}

static void signal_fd(int fd)
{
	uint64_t one = 1;
	ssize_t n = write(fd, &one, sizeof(one)); /* fails only if it is readable already */

	(void)n;
}

static void *thread_main(void *arg)
{
	struct session *s = arg;
	struct fuse_buf buf = { 0 };
	struct epoll_event ev = { .events = EPOLLIN, .data.fd = s->stop };
	int ep = epoll_create1(EPOLL_CLOEXEC);
	bool ended = ep < 0 || epoll_ctl(ep, EPOLL_CTL_ADD, s->stop, &ev) != 0;

	/* Exclusive: one request wakes one thread, not all of them. */
	ev = (struct epoll_event){ .events = EPOLLIN | EPOLLEXCLUSIVE, .data.fd = s->fd };
	ended = ended || epoll_ctl(ep, EPOLL_CTL_ADD, s->fd, &ev) != 0;
	while (!ended) {
		int n = epoll_wait(ep, &ev, 1, -1);
		if (n == 1 && ev.data.fd == s->stop)
			break;
		if (n == 1)
			ended = serve_one(s, &buf) != 0;
		else
			ended = n < 0 && errno != EINTR;
	}
	if (ended) {
		s->gone = true;
		signal_fd(s->ended);
	}
	if (ep >= 0)
		close(ep);
	free(buf.mem);
	return NULL;
}

int session_start(struct session *s, int n, char *why)
{
	for (; s->threads < n && s->threads < THREADS_MAX; s->threads++) {
		int rc = pthread_create(&s->thread[s->threads], NULL, thread_main, s);
		if (rc)
			return fail(why, rc, "cannot start a request thread: %s", strerror(rc));
	}
	return 0;
}

/* As fuse_session_unmount() does it, but leaving the device open, so that what runs can end. */
static void unmount_by_helper(const char *mountpoint)
{
	char *argv[] = { "fusermount3", "-u", "-q", "-z", "--", (char *)mountpoint, NULL };
	pid_t pid;
	int status;

	if (posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ) == 0)
		while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
			;
}

/* After a lazy unmount, or where another mount namespace has a copy, the connection goes on, and
 * somebody else's mount may lie there. */
static bool is_there(const struct session *s)
{
	return s->mountpoint && s->dev && device_at(s->mountpoint) == s->dev;
}

void session_unmount(struct session *s)
{
	if (!s->mounted || s->gone || !is_there(s))
		return;
	s->mounted = false;
	if (s->own_mount)
		umount2(s->mountpoint, MNT_DETACH | UMOUNT_NOFOLLOW);
	else
		unmount_by_helper(s->mountpoint);
}

void session_stop(struct session *s)
{
	if (!s)
		return;
	if (s->threads)
		signal_fd(s->stop);
	for (int i = 0; i < s->threads; i++)
		pthread_join(s->thread[i], NULL);
	s->threads = 0;
}

void session_close(struct session *s)
{
	if (!s)
		return;
	session_stop(s);
	session_unmount(s);
	if (s->fuse) {
		if (!s->own_mount && (s->gone || is_there(s)))
			fuse_session_unmount(s->fuse); /* closes the device */
		fuse_session_destroy(s->fuse);         /* closes it, too */
	}
	if (s->stop >= 0)
		close(s->stop);
	if (s->ended >= 0)
		close(s->ended);
	free(s->mountpoint);
	free(s);
}
