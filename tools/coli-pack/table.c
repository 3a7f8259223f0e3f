/* SPDX-License-Identifier: Apache-2.0
 *
 * What --dry-run prints. See table.h.
 */
#include "tools/coli-pack/table.h"

#include <inttypes.h>

#include "expertfs/size.h"

static void put_type(FILE *f, struct wfmt fmt)
{
	char text[32];

	if (fmt.group)
		snprintf(text, sizeof(text), "%s/%d", wtype_name(fmt.type), fmt.group);
	else
		snprintf(text, sizeof(text), "%s", wtype_name(fmt.type));
	fprintf(f, "%-8s", text);
}

static void put_bytes(FILE *f, uint64_t bytes)
{
	char text[16];

	fprintf(f, "%12s %18" PRIu64 "\n", size_text(bytes, text), bytes);
}

static void put_dense(FILE *f, const struct plan *p)
{
	for (int type = W_F32; type <= W_Q4; type++) {
		struct wfmt fmt = { 0 };
		uint64_t bytes = 0;
		size_t count = 0;
		for (size_t i = 0; i < p->dense_count; i++) {
			if ((int)p->dense[i].fmt.type != type)
				continue;
			fmt = p->dense[i].fmt;
			bytes += p->dense[i].bytes;
			count++;
		}
		if (!count)
			continue;
		fputs("dense    ", f);
		put_type(f, fmt);
		fprintf(f, "%10zu tensors            ", count);
		put_bytes(f, bytes);
	}
}

static void put_experts(FILE *f, const struct plan *p)
{
	for (int i = 0; i < p->layouts; i++) {
		const struct plan_layout *l = &p->layout[i];
		uint64_t count = 0;
		char each[16];
		for (int j = 0; j < p->layers; j++)
			if (p->layer[j].layout == i)
				count += (uint64_t)p->ck->config.model.experts;
		fputs("experts  ", f);
		put_type(f, l->matrix[0].fmt);
		fprintf(f, "%10" PRIu64 " of %-15s ", count, size_text(l->bytes, each));
		put_bytes(f, count * l->bytes);
	}
}

static void put_file(FILE *f, const char *path, uint64_t bytes)
{
	char text[16];

	fprintf(f, "%12s %18" PRIu64 "  %s\n", size_text(bytes, text), bytes, path);
}

void table_print(FILE *f, const struct plan *p, const struct output *o, uint64_t other_bytes)
{
	uint64_t total = p->dense_bytes + other_bytes;
	char path[4096];

	put_dense(f, p);
	put_experts(f, p);
	fputs("\nfiles\n", f);
	snprintf(path, sizeof(path), "%s/dense.bin", o->store);
	put_file(f, path, p->dense_bytes);
	snprintf(path, sizeof(path), "%s/{model,tokenizer}.json", o->store);
	put_file(f, path, other_bytes);
	for (uint32_t i = 0; i < o->drives; i++) {
		put_file(f, o->shard[i].path, p->shard_bytes[i]);
		total += p->shard_bytes[i];
	}
	put_file(f, "in all, without catalog.db", total);
}
