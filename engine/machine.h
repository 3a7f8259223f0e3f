/* SPDX-License-Identifier: Apache-2.0
 *
 * What this process may use of the machine: cores and memory.
 */
#ifndef ENGINE_MACHINE_H
#define ENGINE_MACHINE_H

#include <stdint.h>

/* Physical cores that the process may run on: those of its affinity mask, two threads of a core
 * counting once, no more than the processor quota of its cgroups (rounded up). At least 1. */
int machine_cores(void);

struct memory_room {
	uint64_t bytes;
	const char *limit; /* which limit is the tightest, for a sentence: "MemAvailable of ..." */
};

/* The least of MemAvailable, what each cgroup (v1 and v2) up to the root leaves, and RLIMIT_AS.
 * Pages of files in a cgroup's usage count as free: they give way. UINT64_MAX if nothing limits. */
struct memory_room machine_memory(void);

/* Bytes of memory that this process holds and that no file backs. */
uint64_t machine_own_memory(void);

/* machine_memory() and the quota with another root than "" for /proc and /sys/fs/cgroup, for tests. RLIMIT_AS and the
 * affinity are always this process's own. */
struct memory_room machine_memory_at(const char *root);
double machine_cpu_quota_at(const char *root); /* in processors; 0: none */

#endif
