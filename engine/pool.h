/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads that share out a loop.
 *
 * Not OpenMP, because its threads spin for milliseconds between two loops: on a machine whose cores
 * also run the daemon (or another engine) that was measured to slow a small model down
 * thirteenfold. Here an idle thread spins for some microseconds and then sleeps, and a loop never
 * waits for a thread that has not begun to take part in it.
 */
#ifndef ENGINE_POOL_H
#define ENGINE_POOL_H

struct pool;

/* One item of a loop. thread: 0 .. threads - 1, for buffers of one's own; 0 is the caller of
 * pool_run(). */
typedef void pool_fn(void *arg, int item, int thread);

/* threads >= 1, the caller of pool_run() among them. 0 or negative errno with the sentence. */
int pool_start(int threads, struct pool **out, char *why);
void pool_stop(struct pool *p); /* NULL is fine */

/* fn(arg, i, thread) for every i < items, in any order, on any threads; returns when all are done.
 * One caller at a time; fn must not call it. */
void pool_run(struct pool *p, int items, pool_fn *fn, void *arg);

#endif
