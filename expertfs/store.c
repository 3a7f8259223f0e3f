/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening a store: the catalog, and then whether the files are what the catalog says.
 */
#include "expertfs/store.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "expertfs/catalog.h"
#include "expertfs/disk.h"
#include "expertfs/fail.h"
#include "expertfs/gguf.h"

/* Is the shard of this drive there, whole, and of this store? */
static int check_shard(const struct store *s, uint32_t drive, char *why)
{
	const struct store_drive *d = &s->drive[drive];
	struct shard_head h;
	struct stat st;
	int err = 0, fd = open(d->path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 && errno == ENOENT)
		return fail(why, ENOENT,
			    "%s: the shard of drive %" PRIu32 " is missing; is the drive mounted?",
			    d->path, drive);
	if (fd < 0)
		return fail(why, errno, "%s: %s", d->path, strerror(errno));
	if (fstat(fd, &st) != 0)
		err = fail(why, errno, "%s: %s", d->path, strerror(errno));
	else if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size < d->bytes)
		err = fail(why, EBADMSG,
			   "%s is damaged: it has %" PRIu64 " bytes and should have %" PRIu64,
			   d->path, (uint64_t)st.st_size, d->bytes);
	else if (pread(fd, &h, sizeof(h), 0) != (ssize_t)sizeof(h) || !shard_head_valid(&h))
		err = fail(why, EBADMSG, "%s is damaged: its first block is not that of a shard",
			   d->path);
	else if (!shard_head_is(&h, s->id, drive))
		err = fail(why, EBADMSG,
			   "%s belongs to another store, or to another drive of this one", d->path);
	close(fd);
	return err;
}

const char *const store_file_names[STORE_FILES] = { "model.json", "tokenizer.json", "dense.bin" };

const char *store_file_name(uint32_t i, char buf[STORE_NAME_ROOM])
{
	if (i < STORE_FILES)
		return store_file_names[i];
	snprintf(buf, STORE_NAME_ROOM, "dense-%05u.bin", i - STORE_FILES + 2);
	return buf;
}

static int check_file(const struct store *s, const char *name, char *why)
{
	struct stat st;
	char path[PATH_MAX];

	if (snprintf(path, sizeof(path), "%s/%s", s->dir, name) >= (int)sizeof(path))
		return fail(why, ENAMETOOLONG, "%s: the path is too long", s->dir);
	if (stat(path, &st) != 0)
		return fail(why, errno, "%s is not a store: %s: %s", s->dir, name, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return fail(why, EBADMSG, "%s is not a store: %s is not a file", s->dir, name);
	return 0;
}

static int check_files(const struct store *s, char *why)
{
	char dense[PATH_MAX];
	int err = 0;

	for (int i = 0; !err && i < STORE_FILES; i++)
		err = check_file(s, store_file_names[i], why);
	err = err ? err : check_file(s, "catalog.db", why);
	if (err)
		return err;
	snprintf(dense, sizeof(dense), "%s/%s", s->dir, store_file_names[STORE_FILES - 1]);
	return gguf_is(dense) ? fail(why, EINVAL,
				     "%s has what was learned of a GGUF file, and is no store: "
				     "mount the file itself; it has no checksums that could be "
				     "proved",
				     s->dir)
			      : 0;
}

bool store_copy_is_there(const struct store *s, const struct extent_list *l, unsigned copy)
{
	uint32_t n;
	const struct extent *x = extent_list_copy(l, copy, &n);

	for (uint32_t i = 0; i < n; i++)
		if (s->drive[x[i].drive].missing)
			return false;
	return n > 0;
}

static bool has_copy(const struct store *s, const struct store_expert *e)
{
	for (unsigned c = 0; c < extent_list_copies(e->packed); c++)
		if (store_copy_is_there(s, e->packed, c))
			return true;
	return false;
}

void store_measure(struct store *s)
{
	for (uint32_t i = 0; i < s->experts; i++) {
		const struct store_expert *e = &s->expert[i];
		if (e->bytes > s->max_expert_bytes)
			s->max_expert_bytes = e->bytes;
		if (e->layer >= s->layers_end)
			s->layers_end = e->layer + 1u;
		if (e->expert >= s->experts_per_layer)
			s->experts_per_layer = e->expert + 1u;
		s->total_bytes += e->bytes;
		s->lost += !has_copy(s, e);
	}
}

struct store *store_new(void)
{
	struct store *s = calloc(1, sizeof(*s));

	if (s) {
		pthread_mutex_init(&s->lock, NULL);
		s->files = STORE_FILES;
	}
	return s;
}

int store_open(const char *dir, struct store **out, char *why)
{
	struct store *s = store_new();
	char first[WHY_MAX] = "";
	struct stat st;
	int err = 0;

	if (!s)
		return fail(why, ENOMEM, "out of memory");
	s->dir = realpath(dir, NULL);
	if (!s->dir || stat(s->dir, &st) != 0)
		err = fail(why, errno, "%s: %s", dir, strerror(errno));
	else if (!S_ISDIR(st.st_mode))
		err = fail(why, ENOTDIR, "%s is not a store: not a folder", dir);
	err = err ? err : check_files(s, why);
	err = err ? err : catalog_load(s, why);
	if (err) {
		store_close(s);
		return err;
	}
	for (uint32_t i = 0; i < s->drives; i++)
		if (s->drive[i].path && check_shard(s, i, first[0] ? why : first) != 0)
			s->drive[i].missing = true;
	snprintf(why, WHY_MAX, "%s", first);
	store_measure(s);
	*out = s;
	return 0;
}

void store_close(struct store *s)
{
	if (!s)
		return;
	for (uint32_t i = 0; s->drive && i < s->drives; i++)
		free(s->drive[i].path);
	for (uint32_t i = 0; s->expert && i < s->experts; i++) {
		free(s->expert[i].packed);
		free(s->expert[i].hot);
	}
	free(s->drive);
	free(s->expert);
	free(s->dir);
	free(s->gguf);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

/* What all structs that are found by name begin with. */
struct expert_name {
	uint16_t layer, expert;
};

const void *find_by_name(const void *array, uint32_t n, size_t size, unsigned layer,
			 unsigned expert)
{
	uint32_t lo = 0, hi = n;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;
		const char *at = (const char *)array + mid * size;
		struct expert_name e;
		memcpy(&e, at, sizeof(e));
		if (e.layer == layer && e.expert == expert)
			return at;
		if (e.layer < layer || (e.layer == layer && e.expert < expert))
			lo = mid + 1;
		else
			hi = mid;
	}
	return NULL;
}

const struct store_expert *store_find(const struct store *s, unsigned layer, unsigned expert)
{
	return find_by_name(s->expert, s->experts, sizeof(*s->expert), layer, expert);
}

uint32_t store_index(const struct store *s, unsigned layer, unsigned expert)
{
	const struct store_expert *e = store_find(s, layer, expert);

	return e ? (uint32_t)(e - s->expert) : STORE_NO_EXPERT;
}

const struct extent *extent_list_copy(const struct extent_list *l, unsigned copy, uint32_t *n)
{
	const struct extent *first = NULL;

	*n = 0;
	for (uint32_t i = 0; i < l->n; i++) {
		if (l->x[i].copy != copy)
			continue;
		if ((*n)++ == 0)
			first = &l->x[i];
	}
	return first;
}

struct extent_list *extent_list_new(uint32_t n)
{
	struct extent_list *l = calloc(1, sizeof(*l) + n * sizeof(l->x[0]));

	if (l) {
		l->refs = 1;
		l->n = n;
	}
	return l;
}

void store_take(struct store *s, uint32_t index, struct place *p)
{
	pthread_mutex_lock(&s->lock);
	*p = (struct place){ s->expert[index].packed, s->expert[index].hot };
	p->packed->refs++;
	if (p->hot)
		p->hot->refs++;
	pthread_mutex_unlock(&s->lock);
}

/* True if the last reference is gone. Lock held. */
static bool unref(struct extent_list *l)
{
	return l && --l->refs == 0;
}

void store_give(struct store *s, struct place *p)
{
	bool packed, hot;

	pthread_mutex_lock(&s->lock);
	packed = unref(p->packed);
	hot = unref(p->hot);
	pthread_mutex_unlock(&s->lock);
	if (packed)
		free(p->packed);
	if (hot)
		free(p->hot);
}

void store_drop(struct store *s, struct extent_list *old)
{
	bool last;

	pthread_mutex_lock(&s->lock);
	last = unref(old);
	pthread_mutex_unlock(&s->lock);
	if (last)
		free(old);
}

static struct extent_list *exchange(struct store *s, struct extent_list **at,
				    struct extent_list *now)
{
	struct extent_list *old;

	pthread_mutex_lock(&s->lock);
	old = *at;
	*at = now;
	pthread_mutex_unlock(&s->lock);
	return old;
}

struct extent_list *store_set_packed(struct store *s, uint32_t index, struct extent_list *now)
{
	return exchange(s, &s->expert[index].packed, now);
}

struct extent_list *store_set_hot(struct store *s, uint32_t index, struct extent_list *now)
{
	return exchange(s, &s->expert[index].hot, now);
}

bool store_unread(struct store *s, const struct extent_list *old)
{
	bool only;

	pthread_mutex_lock(&s->lock);
	only = old->refs == 1;
	pthread_mutex_unlock(&s->lock);
	return only;
}

int store_write_shards(const char *dir, const char *const *paths, uint32_t n, char *why)
{
	char path[PATH_MAX];
	FILE *f;
	int err;

	if (snprintf(path, sizeof(path), "%s/shards", dir) >= (int)sizeof(path))
		return fail(why, ENAMETOOLONG, "%s: the path is too long", dir);
	err = replace_begin(path, &f, why);
	if (err)
		return err;
	for (uint32_t i = 0; i < n; i++)
		fprintf(f, "%s\n", paths[i] ? paths[i] : "-");
	return replace_end(f, path, why);
}
