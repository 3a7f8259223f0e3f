/* SPDX-License-Identifier: Apache-2.0
 *
 * The connection to the kernel: mounting, INIT with what libfuse 3.14 cannot say, and the threads
 * that take requests.
 *
 * libfuse learned passthrough in 3.17; Debian 12 and Ubuntu 24.04 have 3.14. As root we open the
 * device and mount ourselves and give libfuse our own read and write (fuse_session_custom_io),
 * which lets us add the two flags to the reply to INIT. This works the same with any later libfuse.
 * Without root libfuse mounts through fusermount3, and there is no passthrough (it needs
 * CAP_SYS_ADMIN anyway).
 *
 * The threads sleep in epoll on the device and on an eventfd, never in read(): so they can always
 * be told to stop (libfuse's own loops before 3.18 cannot).
 */
#ifndef EXPERTFS_SESSION_H
#define EXPERTFS_SESSION_H

#include <fuse_lowlevel.h>
#include <stdbool.h>

struct session;

struct session_options {
	const char *source; /* what mount(8) shows as the device: the store */
	const char *mountpoint;
	bool want_passthrough; /* ask the kernel for it */
	bool allow_other;      /* implies default_permissions */
};

/* Mounts and does the INIT exchange. userdata must begin with a struct session pointer, and out
 * point to it: that is how our read and write find the session. 0 or negative errno and why. */
int session_mount(const struct session_options *o, const struct fuse_lowlevel_ops *ops,
		  void *userdata, struct session **out, char *why);
/* The device's descriptor, for backing ids. */
int session_fd(const struct session *s);
/* True if the kernel agreed to passthrough. */
bool session_passthrough(const struct session *s);

/* Starts n threads that serve requests. */
int session_start(struct session *s, int n, char *why);
/* Readable when the connection has ended by itself (unmounted). */
int session_ended_fd(const struct session *s);
/* Takes the mount point away; open files live on (a lazy unmount). No-op when it is gone already.
 */
void session_unmount(struct session *s);
/* Ends the request threads after the requests at hand. Replies can still be sent. NULL is fine. */
void session_stop(struct session *s);
/* Stops and unmounts if that is still to do, closes the connection, frees. NULL is fine. */
void session_close(struct session *s);

#endif
