/* SPDX-License-Identifier: Apache-2.0
 *
 * A GGUF model as a store: its files are the drives, each expert a list of the slices that it is
 * made of. Nothing is converted and nothing of the model is copied.
 *
 * What the daemon learns and shows lies in a folder, MODEL.gguf.expertfs beside the (first) file or
 * where --state says:
 *
 *	model.json, tokenizer.json   made anew at each start, if they differ
 *	dense.bin                    a symbolic link to the GGUF file, dense-00002.bin and so on to
 *	                             its further ones: tensors lie in them where the file has them
 *	catalog.db                   usage; where experts lie follows from the file's header
 *
 * The model's files have no checksums, so what a drive returns is handed on as it is.
 */
#ifndef EXPERTFS_GGUF_STORE_H
#define EXPERTFS_GGUF_STORE_H

#include "expertfs/store.h"

/* path: of the file, or of the first of several. state: the folder, made if it is not there; NULL:
 * beside the file. *lock holds STORE_SERVED on it until it is closed. 0 or negative errno with the
 * sentence in why: -EINVAL for a file that cannot be mounted, a dense model among others. */
int gguf_store_open(const char *path, const char *state, struct store **out, int *lock, char *why);

#endif
