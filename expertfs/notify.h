/* SPDX-License-Identifier: Apache-2.0
 *
 * Tells the service manager how far we are: the protocol of sd_notify(3), a datagram of lines
 * KEY=VALUE to the socket that NOTIFY_SOCKET names. Without that variable nobody asked.
 */
#ifndef EXPERTFS_NOTIFY_H
#define EXPERTFS_NOTIFY_H

/* Sends state ("READY=1", "STOPPING=1", lines with \n between them). 0 when it was sent or nobody
 * asked; negative errno otherwise: -EINVAL for a NOTIFY_SOCKET that is neither a path nor @NAME.
 * For the process that the manager started: with Type=notify it takes nobody else's word, so a
 * daemon that went into the background is not heard. */
int notify_manager(const char *state);

#endif
