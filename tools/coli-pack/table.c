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
	for (int type = 0; type < WTYPES; type++) {
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

/* What the plan puts on one drive. */
struct load {
	uint64_t bytes;              /* of experts, without heads and filling */
	uint32_t whole, parts, more; /* experts, parts of experts; those that are a further copy */
};

static struct load load_of(const struct plan *p, uint32_t drive)
{
	struct load l = { 0 };

	for (uint32_t i = 0; i < placement_parts(&p->place); i++) {
		const struct part *x = &p->place.part[i];
		if (x->drive != drive)
			continue;
		l.bytes += x->bytes;
		l.whole += x->parts == 1;
		l.parts += x->parts > 1;
		l.more += x->copy > 0;
	}
	return l;
}

static void put_speed(FILE *f, const struct spread *s, uint32_t drive)
{
	static const char *const from[] = {
		[SPEEDS_MEASURED] = " as measured", [SPEEDS_GIVEN] = " as given"
	};
	char speed[16];

	if (s->speeds_from == SPEEDS_EQUAL)
		fputs("taken as fast as the others", f);
	else
		fprintf(f, "%s/s%s", size_text(s->speed[drive], speed), from[s->speeds_from]);
}

/* Copies on folders of one file system all go when it goes. */
static void put_warning(FILE *f, const struct plan *p, const struct output *o)
{
	if (p->spread.replicas == 1 && !p->spread.hot_bytes)
		return;
	for (uint32_t i = 0; i < o->drives; i++)
		for (uint32_t j = i + 1; j < o->drives; j++)
			if (output_same_device(o, i, j)) {
				fprintf(f,
					"drives %" PRIu32 " and %" PRIu32
					" are on one file system: a copy on each is no help when "
					"that "
					"fails\n",
					i, j);
				return;
			}
}

void table_drives(FILE *f, const struct plan *p, const struct output *o)
{
	const struct spread *s = &p->spread;
	uint64_t total = 0;
	char size[16];

	for (uint32_t i = 0; i < placement_parts(&p->place); i++)
		total += p->place.part[i].bytes;
	for (uint32_t d = 0; d < s->drives; d++) {
		struct load l = load_of(p, d);
		fprintf(f, "drive %" PRIu32 "  %s: ", d, o->shard[d].path);
		put_speed(f, s, d);
		fprintf(f, ", %.1f %%, %s: %" PRIu32 " whole experts, %" PRIu32 " parts",
			100.0 * (double)l.bytes / (double)total, size_text(l.bytes, size), l.whole,
			l.parts);
		if (l.more)
			fprintf(f, " (%" PRIu32 " of a further copy)", l.more);
		fputc('\n', f);
	}
	put_warning(f, p, o);
}

static void put_spread(FILE *f, const struct plan *p)
{
	const struct spread *s = &p->spread;
	char hot[16];

	fprintf(f, "\nlayout   %s over %" PRIu32 " drive%s, %u cop%s of each expert",
		s->layout == LAYOUT_WHOLE ? "whole" : "stripe", s->drives,
		s->drives == 1 ? "" : "s", s->replicas, s->replicas == 1 ? "y" : "ies");
	if (s->hot_bytes)
		fprintf(f, ", one more of the %" PRIu32 " hottest (at most %s)", p->hot,
			size_text(s->hot_bytes, hot));
	fputc('\n', f);
}

void table_print(FILE *f, const struct plan *p, const struct output *o, uint64_t other_bytes)
{
	uint64_t total = p->dense_bytes + other_bytes;
	char path[4096];

	put_dense(f, p);
	put_experts(f, p);
	put_spread(f, p);
	table_drives(f, p, o);
	fputs("\nfiles\n", f);
	snprintf(path, sizeof(path), "%s/dense.bin", o->store);
	put_file(f, path, p->dense_bytes);
	snprintf(path, sizeof(path), "%s/{model,tokenizer}.json", o->store);
	put_file(f, path, other_bytes);
	for (uint32_t i = 0; i < o->drives; i++) {
		put_file(f, o->shard[i].path, p->place.shard_bytes[i]);
		total += p->place.shard_bytes[i];
	}
	put_file(f, "in all, without catalog.db", total);
}
