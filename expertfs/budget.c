/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory budget; see budget.h.
 */
#include "expertfs/budget.h"

#include <errno.h>
#include <stdio.h>

#include "expertfs/fail.h"
#include "expertfs/hotdir.h"
#include "expertfs/memory.h"
#include "expertfs/respread.h"
#include "expertfs/size.h"
#include "expertfs/usage.h"

#define THREAD_BYTES (16u << 10) /* what a thread's stack and libfuse's buffer really touch */
/* An expert's entry, list of extents, slot and policy entry, and in the picture that is made of all
 * for a control file. */
#define EXPERT_BYTES 512u

static void make_terms(const struct store *s, int threads, bool hot_dir, struct budget *b)
{
	uint64_t buffer =
		s->max_expert_bytes < READ_BUFFER_SIZE ? s->max_expert_bytes : READ_BUFFER_SIZE;

	b->tables = (uint64_t)s->experts * EXPERT_BYTES;
	b->threads = (uint64_t)threads * THREAD_BYTES;
	b->buffers = READ_BUFFERS * shard_round_up(buffer);
	b->usage = usage_memory(s->experts);
	b->moving = respread_memory(s);
	b->hot_drive = hot_dir ? hotdir_memory(s) : 0;
	b->fixed = b->tables + b->threads + b->buffers + b->usage + b->moving + b->hot_drive;
}

int budget_make(uint64_t asked, const struct store *s, const struct backing_source *source,
		int threads, bool hot_dir, struct budget *b, char *why)
{
	uint64_t all = 0;
	char t1[16], t2[16], t3[16];

	make_terms(s, threads, hot_dir, b);
	b->available = memory_available();
	b->total = asked == UINT64_MAX ? b->available / 2 : asked;
	b->capacity = b->total > b->fixed ? b->total - b->fixed : 0;
	for (uint32_t i = 0; i < s->experts; i++)
		all += backing_cost(source, s->expert[i].bytes);
	b->slots = all <= b->capacity ? s->experts : (uint32_t)(b->capacity / (all / s->experts));
	b->needed = b->fixed + (all < b->capacity ? all : b->capacity);
	if (b->available && b->needed > b->available)
		return fail(why, ENOMEM, "--memory %s does not fit: %s is available, %s is missing",
			    size_text(b->total, t1), size_text(b->available, t2),
			    size_text(b->needed - b->available, t3));
	return 0;
}

void budget_text(const struct budget *b, const struct store *s, const struct backing_source *source,
		 char *text, size_t size)
{
	const struct {
		const char *name;
		uint64_t bytes;
	} term[] = { { "tables", b->tables },   { "threads", b->threads },
		     { "buffers", b->buffers }, { "usage", b->usage },
		     { "moving", b->moving },   { "hot drive", b->hot_drive } };
	char t1[16], t2[16];
	size_t n =
		(size_t)snprintf(text, size, "memory %s: hot store %s (%u of %u experts%s)",
				 size_text(b->total, t1), size_text(b->capacity, t2), b->slots,
				 s->experts, backing_source_huge(source) ? ", in huge pages" : "");

	for (size_t i = 0; i < sizeof(term) / sizeof(*term) && n < size; i++)
		if (term[i].bytes)
			n += (size_t)snprintf(text + n, size - n, ", %s %s", term[i].name,
					      size_text(term[i].bytes, t1));
	if (b->fixed > b->total && n < size)
		snprintf(text + n, size - n, "; %s in all, which is more than --memory",
			 size_text(b->fixed, t1));
}
