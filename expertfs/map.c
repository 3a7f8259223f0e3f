/* SPDX-License-Identifier: Apache-2.0
 *
 * .expertfs/map and .expertfs/top: heat and residency of the experts; stats.h has the formats.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "expertfs/stats.h"

/* How hot on a scale of powers of two below the hottest; see stats.h. */
static unsigned level(double heat, double hottest)
{
	unsigned l = MAP_LEVELS - 1;

	if (!(heat > 0))
		return 0;
	while (l > 1 && heat <= hottest / 2) {
		hottest /= 2;
		l--;
	}
	return l;
}

static char symbol(const struct hot_info *i, double hottest)
{
	char first = i->state == HOT_LOADING    ? 'a'
		     : i->state != HOT_RESIDENT ? '0'
		     : i->pinned                ? 'K'
						: 'A';

	return (char)(first + (int)level(i->heat, hottest));
}

char *map_text(const struct store *s, const struct hot_info *info)
{
	double hottest = 0;
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return NULL;
	for (uint32_t i = 0; i < s->experts; i++)
		if (info[i].heat > hottest)
			hottest = info[i].heat;
	fprintf(out, "# hottest %.6g\n", hottest);
	for (uint32_t i = 0, next = 0; i < s->experts; i++) {
		const struct store_expert *e = &s->expert[i];
		if (i == 0 || e->layer != e[-1].layer) {
			fprintf(out, "%s%03u ", i ? "\n" : "", e->layer);
			next = 0;
		}
		for (; next < e->expert; next++)
			fputc('-', out);
		fputc(symbol(&info[i], hottest), out);
		next = e->expert + 1u;
	}
	if (s->experts > 0)
		fputc('\n', out);
	if (fclose(out) != 0) {
		free(text);
		return NULL;
	}
	return text;
}

/* Puts expert i into the list of the hottest so far, best[0..*n), in order. max: its room. */
static void rank(const struct hot_info *info, uint32_t i, uint32_t *best, unsigned *n, unsigned max)
{
	unsigned at = *n < max ? (*n)++ : max - 1;

	for (; at > 0 && info[best[at - 1]].heat < info[i].heat; at--)
		best[at] = best[at - 1];
	best[at] = i;
}

static void top_line(FILE *out, const struct store_expert *e, const struct hot_info *i)
{
	static const char *const states[] = {
		[HOT_COLD] = "cold", [HOT_LOADING] = "loading", [HOT_RESIDENT] = "resident"
	};

	fprintf(out, "%u/%u %.6g %" PRIu64 " %" PRIu64 " %" PRIu64 " %.3f %s %s %s\n", e->layer,
		e->expert, i->heat, i->uses, i->loads, i->last_use, (double)i->load_ns * 1e-6,
		states[i->state], i->pinned ? "pinned" : "-", i->held ? "held" : "-");
}

char *top_text(const struct store *s, const struct hot_info *info, unsigned n)
{
	uint32_t *best = calloc(n ? n : 1, sizeof(*best));
	unsigned found = 0;
	char *text = NULL;
	size_t size;
	FILE *out = best ? open_memstream(&text, &size) : NULL;

	if (!out) {
		free(best);
		return NULL;
	}
	for (uint32_t i = 0; i < s->experts && n > 0; i++)
		if (info[i].heat > 0 && (found < n || info[i].heat > info[best[found - 1]].heat))
			rank(info, i, best, &found, n);
	fputs("# expert heat uses loads last_use load_ms state pinned held\n", out);
	for (unsigned i = 0; i < found; i++)
		top_line(out, &s->expert[best[i]], &info[best[i]]);
	free(best);
	if (fclose(out) != 0) {
		free(text);
		return NULL;
	}
	return text;
}

static struct hot_info *snapshot(const struct fs *fs)
{
	struct hot_info *info = calloc(fs->store->experts ? fs->store->experts : 1, sizeof(*info));

	if (info)
		hotstore_snapshot(fs->hot, info);
	return info;
}

char *fs_map_text(const struct fs *fs)
{
	struct hot_info *info = snapshot(fs);
	char *text = info ? map_text(fs->store, info) : NULL;

	free(info);
	return text;
}

char *fs_top_text(const struct fs *fs, unsigned n)
{
	struct hot_info *info = snapshot(fs);
	char *text = info ? top_text(fs->store, info, n) : NULL;

	free(info);
	return text;
}
