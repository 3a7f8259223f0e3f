/* SPDX-License-Identifier: Apache-2.0
 *
 * A GGUF model: one file, or several that belong together; see gguf.h. The header of each:
 * gguf_header.c.
 */
#include "expertfs/gguf.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "expertfs/fail.h"
#include "expertfs/gguf_parts.h"

/* "-00001-of-00003.gguf" */
#define SPLIT_NAME 20u
#define ARCH_MAX   64u

/* Opens a regular file; a FIFO or a device would block or have no size. */
static int open_regular(const char *path, struct stat *st, char *why)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0)
		return fail(why, errno, "%s: %s", path, strerror(errno));
	if (fstat(fd, st) == 0 && S_ISREG(st->st_mode))
		return fd;
	close(fd);
	return fail(why, EINVAL, "%s is not a file", path);
}

bool gguf_is(const char *path)
{
	size_t n = strlen(path);
	char magic[4] = "";
	struct stat st;
	int fd;

	if (stat(path, &st) != 0 || !S_ISREG(st.st_mode))
		return false;
	if (n > 5 && strcmp(path + n - 5, ".gguf") == 0)
		return true;
	fd = open_regular(path, &st, NULL);
	if (fd < 0)
		return false;
	bool is = pread(fd, magic, sizeof(magic), 0) == sizeof(magic) &&
		  memcmp(magic, "GGUF", sizeof(magic)) == 0;
	close(fd);
	return is;
}

/* Opens one file as part g->parts and adds its tensors; h gets its keys and bytes. */
static int add_part(struct gguf *g, const char *path, struct gguf_header *h, char *why)
{
	struct gguf_part *p = &g->part[g->parts];
	struct gguf_tensor *grown;
	struct stat st = { 0 };
	int err;

	*p = (struct gguf_part){ .path = realpath(path, NULL) };
	if (!p->path)
		return fail(why, errno, "%s: %s", path, strerror(errno));
	p->fd = open_regular(path, &st, why);
	g->parts++;
	if (p->fd < 0)
		return p->fd;
	p->bytes = (uint64_t)st.st_size;
	p->mtime = st.st_mtim;
	err = gguf_header_read(p->fd, p->bytes, path, g->part[0].align, h, why);
	if (err)
		return err;
	p->header_bytes = h->used;
	p->header_check = h->check;
	p->align = h->align;
	grown = realloc(g->tensor, (g->tensors + h->tensors + 1) * sizeof(*grown));
	if (!grown)
		return fail(why, ENOMEM, "out of memory");
	g->tensor = grown;
	for (size_t i = 0; i < h->tensors; i++) {
		h->tensor[i].part = g->parts - 1;
		g->tensor[g->tensors++] = h->tensor[i];
	}
	h->tensors = 0; /* the names are g's now */
	return 0;
}

/* An integer of a part's own metadata; `absent` if it is not there. */
static int part_int(const struct gguf_header *h, const char *path, const char *name, int64_t hi,
		    int64_t absent, int64_t *out, char *why)
{
	const struct gguf_key *k = gguf_key_find(h->key, h->keys, name);

	*out = absent;
	if (!k)
		return 0;
	if (k->array || !gguf_kind_bytes(k->kind) || k->kind == GGUF_F32 || k->kind == GGUF_F64)
		return fail(why, EINVAL, "%s: %s is not an integer", path, name);
	*out = gguf_number(h->bytes + k->at, k->kind);
	if (*out < 0 || *out > hi)
		return fail(why, EINVAL, "%s: %s is %" PRId64, path, name, *out);
	return 0;
}

/* Part `no` of `count`, whose header is h. */
static int check_part(const struct gguf_header *h, const char *path, int64_t no, int64_t count,
		      char *why)
{
	int64_t its_no, its_count;
	int err = part_int(h, path, "split.no", GGUF_PARTS_MAX, 0, &its_no, why);

	err = err ? err : part_int(h, path, "split.count", GGUF_PARTS_MAX, 0, &its_count, why);
	if (!err && (its_no != no || its_count != count))
		err = fail(why, EINVAL,
			   "%s says that it is file %" PRId64 " of %" PRId64
			   " of a split model, and should be file %" PRId64 " of %" PRId64,
			   path, its_no + 1, its_count, no + 1, count);
	return err;
}

/* The further files of a set, whose first is open. */
static int add_others(struct gguf *g, const char *path, int64_t count, char *why)
{
	size_t n = strlen(path);
	struct gguf_header h = { 0 };
	char *other = strdup(path), tail[SPLIT_NAME + 12];
	int err = 0;

	if (!other)
		return fail(why, ENOMEM, "out of memory");
	snprintf(tail, sizeof(tail), "-00001-of-%05d.gguf", (int)count);
	if (n <= SPLIT_NAME || strcmp(path + n - SPLIT_NAME, tail) != 0)
		err = fail(why, EINVAL,
			   "%s is the first of %" PRId64
			   " files, and so its name has to end with %s",
			   path, count, tail);
	for (int64_t i = 1; i < count && !err; i++) {
		snprintf(tail, sizeof(tail), "-%05d-of-%05d.gguf", (int)i + 1, (int)count);
		memcpy(other + n - SPLIT_NAME, tail, SPLIT_NAME);
		err = add_part(g, other, &h, why);
		err = err ? err : check_part(&h, other, i, count, why);
		gguf_header_free(&h);
	}
	free(other);
	return err;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct gguf_tensor *)a)->name, ((const struct gguf_tensor *)b)->name);
}

static int sort_tensors(struct gguf *g, const char *path, int64_t total, char *why)
{
	if (total >= 0 && (uint64_t)total != g->tensors)
		return fail(why, EINVAL,
			    "%s: the files together have %zu tensors and should have %" PRId64,
			    path, g->tensors, total);
	if (g->tensors)
		qsort(g->tensor, g->tensors, sizeof(*g->tensor), by_name);
	for (size_t i = 1; i < g->tensors; i++)
		if (strcmp(g->tensor[i - 1].name, g->tensor[i].name) == 0)
			return fail(why, EINVAL, "%s: the tensor %s is there twice", path,
				    g->tensor[i].name);
	return 0;
}

/* general.architecture as a string that can be put into key names. */
static int read_arch(struct gguf *g, char *why)
{
	struct gguf_text t;
	char *arch;
	int err = gguf_string(g, "general.architecture", &t, why);

	if (err == -ENOENT)
		return fail(why, EINVAL, "%s: general.architecture is missing", g->part[0].path);
	if (err)
		return err;
	if (t.bytes > ARCH_MAX)
		return fail(why, EINVAL, "%s: general.architecture is not a name", g->part[0].path);
	arch = gguf_text_copy(t);
	if (!arch)
		return fail(why, ENOMEM, "out of memory");
	g->arch = arch;
	if (!*arch || strspn(arch, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
				   "._-") != t.bytes)
		return fail(why, EINVAL, "%s: general.architecture is not a name", g->part[0].path);
	return 0;
}

static int open_all(struct gguf *g, const char *path, char *why)
{
	struct gguf_header h = { 0 };
	int64_t count, no, total = -1;
	int err = add_part(g, path, &h, why);

	if (!err)
		err = part_int(&h, path, "split.count", GGUF_PARTS_MAX, 1, &count, why);
	if (!err)
		err = part_int(&h, path, "split.no", GGUF_PARTS_MAX, 0, &no, why);
	if (!err && no != 0)
		err = fail(why, EINVAL,
			   "%s is file %" PRId64 " of %" PRId64
			   ": name the first one, ...-00001-of-%05d.gguf",
			   path, no + 1, count, (int)count);
	if (!err && count > 1)
		err = part_int(&h, path, "split.tensors.count", INT32_MAX, -1, &total, why);
	if (err) {
		gguf_header_free(&h);
		return err;
	}
	g->header = h.bytes;
	g->keys = h.keys;
	g->key = h.key;
	free(h.tensor);
	err = read_arch(g, why);
	if (!err && count > 1)
		err = add_others(g, path, count, why);
	return err ? err : sort_tensors(g, path, total, why);
}

int gguf_open(const char *path, struct gguf **out, char *why)
{
	struct gguf *g = calloc(1, sizeof(*g));
	int err;

	if (g)
		g->part = calloc(GGUF_PARTS_MAX, sizeof(*g->part));
	if (!g || !g->part) {
		gguf_close(g);
		return fail(why, ENOMEM, "out of memory");
	}
	err = open_all(g, path, why);
	if (err)
		gguf_close(g);
	else
		*out = g;
	return err;
}

void gguf_close(struct gguf *g)
{
	if (!g)
		return;
	for (uint32_t i = 0; i < g->parts; i++) {
		if (g->part[i].fd >= 0)
			close(g->part[i].fd);
		free(g->part[i].path);
	}
	for (size_t i = 0; i < g->keys; i++)
		free(g->key[i].name);
	for (size_t i = 0; i < g->tensors; i++)
		free(g->tensor[i].name);
	free(g->part);
	free(g->header);
	free(g->key);
	free(g->tensor);
	free((char *)(uintptr_t)g->arch);
	free(g);
}

static int compare(const void *name, const void *tensor)
{
	return strcmp(name, ((const struct gguf_tensor *)tensor)->name);
}

const struct gguf_tensor *gguf_tensor(const struct gguf *g, const char *name)
{
	return g->tensors ? bsearch(name, g->tensor, g->tensors, sizeof(*g->tensor), compare)
			  : NULL;
}

uint64_t gguf_slice_bytes(const struct gguf_tensor *t)
{
	return t->bytes / t->dim[t->dims - 1];
}
