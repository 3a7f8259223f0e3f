/* SPDX-License-Identifier: Apache-2.0
 *
 * dense.bin in memory: the tensors that every token uses. Mapped where the file system maps, read
 * into memory where it does not (a mount in direct mode). Of a mounted GGUF file, which is all of
 * the model, only the dense tensors are brought into memory; and there may be several files.
 */
#ifndef ENGINE_DENSE_H
#define ENGINE_DENSE_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/modelfile.h"
#include "engine/mount.h"
#include "engine/progress.h"

struct dense {
	const struct modelfile *file; /* not owned; must outlive this */
	void **base; /* [file->dense_files], of the file's size; NULL: not there yet */
};

/* That the files are there and have their sizes; opens nothing. */
int dense_check(const struct modelfile *file, char *why);

/* 0 or negative errno with the sentence. All tensors are in memory afterwards, those of layers behind
 * the last one only if extra; they may not be touched else. */
int dense_open(struct dense *d, const struct modelfile *file, enum serve_mode mode, bool extra,
	       const struct progress *progress, char *why);
void dense_close(struct dense *d); /* a zeroed one is fine */

/* Points *out at the tensor of this name, which must have this shape. */
int dense_matrix(const struct dense *d, const char *name, int rows, int cols, struct wmat *out,
		 char *why);
/* The same for a vector of n floats; it must be stored as f32. */
int dense_vector(const struct dense *d, const char *name, int n, const float **out, char *why);

#endif
