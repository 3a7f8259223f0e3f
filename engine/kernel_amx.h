/* SPDX-License-Identifier: Apache-2.0
 *
 * What AMX adds to the table of VNNI's kernels; for kernel.c alone. x86-64 only.
 */
#ifndef ENGINE_KERNEL_AMX_H
#define ENGINE_KERNEL_AMX_H

#include <stdbool.h>

#include "engine/kernel.h"

/* Whether processor and system have it; asks the system for permission to use it, for the process. */
bool kernel_amx_usable(void);

void kernel_multiply_amx(const struct wmat *m, int block, const struct acts *a, float *y,
			 size_t ldy);
/* Of kernel_int8.c, for few rows. */
void kernel_multiply_vnni(const struct wmat *m, int block, const struct acts *a, float *y,
			  size_t ldy);

#endif
