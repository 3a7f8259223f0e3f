/* SPDX-License-Identifier: Apache-2.0
 *
 * The files below MOUNT/.expertfs as the subcommands read and write them, and why they cannot, in
 * words that say what to do about it.
 */
#ifndef EXPERTCTL_MOUNTFILE_H
#define EXPERTCTL_MOUNTFILE_H

#include <stdbool.h>
#include <stddef.h>

#define MOUNTFILE_MAX (16u << 20) /* a file that is larger is none of the daemon's */

/* All of MOUNT/.expertfs/NAME; free(*text), which has a zero behind its *bytes bytes. 0 or negative
 * errno with the sentence in why. May wait for as long as the daemon makes it. */
int mountfile_read(const char *mount, const char *name, char **text, size_t *bytes, char *why);

/* The same, to standard output. */
int mountfile_print(const char *mount, const char *name, char *why);

/* Writes text, whole lines, to MOUNT/.expertfs/NAME. 0, or negative errno with the sentence of the
 * daemon in why. Lines before the one that failed have been obeyed. */
int mountfile_write(const char *mount, const char *name, const char *text, char *why);

/* True if path is a store, rather than a mount of one. */
bool mountfile_is_store(const char *path);

/* True if word names a mount: something with .expertfs in it, or at least a path that begins with a
 * slash or a dot. "3/117" is an expert unless a mount lies there. */
bool mountfile_is_mount(const char *word);

#endif
