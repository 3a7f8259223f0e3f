/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening a checkpoint folder. See checkpoint.h.
 */
#include "tools/coli-pack/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "expertfs/fail.h"
#include "tools/coli-pack/chat.h"
#include "tools/coli-pack/colibri.h"
#include "tools/coli-pack/gguf.h"
#include "tools/coli-pack/textfile.h"
#include "tools/coli-pack/tied.h"

#define CONFIG_MAX    (16u << 20)
#define INDEX_MAX     (256u << 20)
#define TOKENIZER_MAX (256u << 20)

static const char index_name[] = "model.safetensors.index.json";

static int no_memory(const struct checkpoint *ck, char *why)
{
	return fail(why, ENOMEM, "out of memory for the table of %s", ck->dir);
}

static int add_eos(struct checkpoint *ck, const char *path, const json_t *id, char *why)
{
	if (!json_is_integer(id) || json_integer_value(id) < 0 ||
	    json_integer_value(id) > INT32_MAX)
		return fail(why, EINVAL, "%s: eos_token_id is not a token id or a list of them",
			    path);
	for (size_t i = 0; i < ck->eos_count; i++)
		if (ck->eos[i] == json_integer_value(id))
			return 0;
	int64_t *more = realloc(ck->eos, (ck->eos_count + 1) * sizeof(*more));
	if (!more)
		return no_memory(ck, why);
	ck->eos = more;
	ck->eos[ck->eos_count++] = json_integer_value(id);
	return 0;
}

static int add_eos_of(struct checkpoint *ck, const char *path, const json_t *root, char *why)
{
	const json_t *id = json_object_get(root, "eos_token_id");
	int err = 0;

	if (!id || json_is_null(id))
		return 0;
	if (!json_is_array(id))
		return add_eos(ck, path, id, why);
	/* A model has a handful; the limit keeps the search for duplicates short. */
	if (json_array_size(id) > 1024)
		return fail(why, EINVAL, "%s: eos_token_id lists more than 1024 ids", path);
	for (size_t i = 0; err == 0 && i < json_array_size(id); i++)
		err = add_eos(ck, path, json_array_get(id, i), why);
	return err;
}

static int replace_config(struct checkpoint *ck, const json_t *root, char *why)
{
	char *text = json_dumps(root, JSON_INDENT(1));

	if (!text)
		return no_memory(ck, why);
	free(ck->config_text);
	ck->config_text = text;
	ck->config_bytes = strlen(text);
	return 0;
}

int ckpt_set_config(struct checkpoint *ck, const char *key, json_t *value, char *why)
{
	json_t *root = json_loadb(ck->config_text, ck->config_bytes, 0, NULL);
	int err = json_object_set_new(root, key, value) ? no_memory(ck, why) : 0;

	err = err ? err : replace_config(ck, root, why);
	json_decref(root);
	return err;
}

static int read_configs(struct checkpoint *ck, char *why)
{
	char *path = text_format("%s/config.json", ck->dir);
	char *generation = text_format("%s/generation_config.json", ck->dir);
	json_t *root = NULL, *more = NULL;
	int err;

	if (!path || !generation) {
		err = no_memory(ck, why);
	} else {
		err = text_load(path, CONFIG_MAX, &ck->config_text, &ck->config_bytes, why);
		err = err ? err : object_parse(path, ck->config_text, ck->config_bytes, &root, why);
		if (!err && pack_config_own(root))
			err = replace_config(ck, root, why);
		err = err ? err : pack_config_parse(root, path, &ck->config, why);
		err = err ? err : add_eos_of(ck, path, root, why);
	}
	if (err == 0) {
		err = object_load(generation, CONFIG_MAX, &more, why);
		err = err == -ENOENT ? 0 : err;
		err = err ? err : add_eos_of(ck, generation, more, why);
	}
	json_decref(root);
	json_decref(more);
	free(path);
	free(generation);
	return err;
}

/* Read, but not understood: that is the engine's. A pointer file or half a download is noticed. */
static int read_tokenizer(struct checkpoint *ck, char *why)
{
	ck->tokenizer_path = text_format("%s/tokenizer.json", ck->dir);
	if (!ck->tokenizer_path)
		return no_memory(ck, why);
	int err = text_load(ck->tokenizer_path, TOKENIZER_MAX, &ck->tokenizer_text,
			    &ck->tokenizer_bytes, why);
	if (err)
		return err;
	const char *from = ck->tokenizer_text, *to = from + ck->tokenizer_bytes;
	while (from < to && strchr(" \t\r\n", *from) && *from)
		from++;
	while (to > from && strchr(" \t\r\n", to[-1]) && to[-1])
		to--;
	if (to - from < 2 || *from != '{' || to[-1] != '}')
		return fail(why, EINVAL, "%s is not a whole JSON object", ck->tokenizer_path);
	return 0;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

struct names {
	char **name;
	size_t count;
};

static int add_name(struct names *n, const char *name)
{
	char **more = realloc(n->name, (n->count + 1) * sizeof(*more));

	if (!more)
		return -ENOMEM;
	n->name = more;
	more[n->count] = strdup(name);
	return more[n->count++] ? 0 : -ENOMEM;
}

static void free_names(struct names *n)
{
	for (size_t i = 0; i < n->count; i++)
		free(n->name[i]);
	free(n->name);
}

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);

	return n > m && strcmp(s + n - m, end) == 0;
}

/* The files that the index names. They lie in the folder itself: a path out of it is refused. */
static int names_of_index(struct checkpoint *ck, const json_t *map, struct names *out, char *why)
{
	const char *tensor;
	json_t *value;
	json_t *seen = json_object();
	int err = seen ? 0 : no_memory(ck, why);

	json_object_foreach((json_t *)map, tensor, value)
	{
		const char *name = json_string_value(value);
		if (err || (name && json_object_get(seen, name)))
			continue;
		if (!name || name[0] == '.' || strchr(name, '/') ||
		    !ends_with(name, ".safetensors"))
			err = fail(why, EINVAL,
				   "%s/%s: the entry of %s is not the name of a .safetensors file",
				   ck->dir, index_name, tensor);
		else if (json_object_set_new(seen, name, json_true()) != 0 ||
			 add_name(out, name) != 0)
			err = no_memory(ck, why);
	}
	json_decref(seen);
	return err;
}

static int names_of_folder(struct checkpoint *ck, struct names *out, char *why)
{
	DIR *d = opendir(ck->dir);
	const struct dirent *e;
	int err = 0;

	if (!d)
		return fail(why, errno, "cannot open %s: %s", ck->dir, strerror(errno));
	while (err == 0 && (e = readdir(d)))
		if (e->d_name[0] != '.' && ends_with(e->d_name, ".safetensors") &&
		    add_name(out, e->d_name) != 0)
			err = no_memory(ck, why);
	closedir(d);
	return err;
}

static int open_files(struct checkpoint *ck, const struct names *n, char *why)
{
	struct rlimit limit;
	int err = 0;

	/* All stay open: what is packed later is the file that was checked now. */
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
	if (n->count == 0)
		return fail(why, EINVAL, "%s holds no .safetensors file", ck->dir);
	qsort(n->name, n->count, sizeof(*n->name), by_text);
	ck->file = calloc(n->count, sizeof(*ck->file));
	if (!ck->file)
		return no_memory(ck, why);
	for (size_t i = 0; err == 0 && i < n->count; i++) {
		char *path = text_format("%s/%s", ck->dir, n->name[i]);
		err = path ? st_open(path, &ck->file[i], why) : no_memory(ck, why);
		if (err == 0)
			ck->files++;
		free(path);
	}
	return err;
}

static int by_tensor_name(const void *a, const void *b)
{
	const struct ckpt_name *x = a, *y = b;

	return strcmp(x->tensor->name, y->tensor->name);
}

static int make_lookup(struct checkpoint *ck, char *why)
{
	size_t total = 0, n = 0;

	for (size_t i = 0; i < ck->files; i++)
		total += ck->file[i].tensors;
	ck->by_name = calloc(total + 1, sizeof(*ck->by_name));
	if (!ck->by_name)
		return no_memory(ck, why);
	for (size_t i = 0; i < ck->files; i++)
		for (size_t j = 0; j < ck->file[i].tensors; j++)
			ck->by_name[n++].tensor = &ck->file[i].tensor[j];
	qsort(ck->by_name, n, sizeof(*ck->by_name), by_tensor_name);
	ck->tensors = n;
	for (size_t i = 1; i < n; i++)
		if (strcmp(ck->by_name[i - 1].tensor->name, ck->by_name[i].tensor->name) == 0)
			return fail(why, EINVAL, "%s is both in %s and in %s",
				    ck->by_name[i].tensor->name,
				    ck->by_name[i - 1].tensor->file->path,
				    ck->by_name[i].tensor->file->path);
	return 0;
}

const struct st_tensor *ckpt_find(const struct checkpoint *ck, const char *name)
{
	const struct st_tensor named = { .name = (char *)name };
	const struct ckpt_name key = { &named };
	const struct ckpt_name *hit =
		bsearch(&key, ck->by_name, ck->tensors, sizeof(key), by_tensor_name);

	return hit ? hit->tensor : NULL;
}

/* What the index promises must be where it says. */
static int check_index(const struct checkpoint *ck, const json_t *map, char *why)
{
	const char *name;
	json_t *value;

	json_object_foreach((json_t *)map, name, value)
	{
		const struct st_tensor *t = ckpt_find(ck, name);
		const char *file = json_string_value(value);
		if (!t || strcmp(strrchr(t->file->path, '/') + 1, file) != 0)
			return fail(why, EINVAL, "%s/%s says that %s holds %s, which it does not",
				    ck->dir, index_name, file, name);
	}
	return 0;
}

static int read_tensors(struct checkpoint *ck, char *why)
{
	char *path = text_format("%s/%s", ck->dir, index_name);
	struct names names = { 0 };
	const json_t *map = NULL;
	json_t *root = NULL;
	int err = path ? object_load(path, INDEX_MAX, &root, why) : no_memory(ck, why);

	if (err == -ENOENT) {
		err = names_of_folder(ck, &names, why);
	} else if (err == 0) {
		map = json_object_get(root, "weight_map");
		err = json_is_object(map) ? names_of_index(ck, map, &names, why)
					  : fail(why, EINVAL, "%s has no weight_map", path);
	}
	err = err ? err : open_files(ck, &names, why);
	err = err ? err : make_lookup(ck, why);
	if (err == 0 && map)
		err = check_index(ck, map, why);
	free_names(&names);
	json_decref(root);
	free(path);
	return err;
}

/* A checkpoint may promise MTP layers in its configuration and come without them. Colibri's converter
 * leaves out their indexers: they would guess other tokens without, so such a layer is left. */
static int count_mtp(struct checkpoint *ck)
{
	struct pack_config *c = &ck->config;
	int promised = c->mtp_layers, found = 0;
	char prefix[96];

	for (; found < promised; found++) {
		int n = snprintf(prefix, sizeof(prefix), "model.layers.%d.",
				 c->model.layers + found);
		size_t lo = 0, hi = ck->tensors;
		/* The first name that is not below the prefix has it, if any has. */
		while (lo < hi) {
			size_t mid = lo + (hi - lo) / 2;
			if (strcmp(ck->by_name[mid].tensor->name, prefix) < 0)
				lo = mid + 1;
			else
				hi = mid;
		}
		if (lo == ck->tensors ||
		    strncmp(ck->by_name[lo].tensor->name, prefix, (size_t)n) != 0)
			break;
		snprintf(prefix + n, sizeof(prefix) - (size_t)n, "self_attn.indexer.wq_b.weight");
		if (ck->colibri && c->model.arch->indexer && !ckpt_find(ck, prefix))
			break;
	}
	c->mtp_layers = found;
	return promised - found;
}

int ckpt_open(const char *dir, struct checkpoint **out, int *mtp_missing, char *why)
{
	struct checkpoint *ck = calloc(1, sizeof(*ck));
	int err;

	if (!ck)
		return fail(why, ENOMEM, "out of memory");
	ck->dir = realpath(dir, NULL);
	if (!ck->dir) {
		free(ck);
		return fail(why, errno, "cannot open the checkpoint %s: %s", dir, strerror(errno));
	}
	ck->name = strrchr(ck->dir, '/') + 1;
	err = read_configs(ck, why);
	err = err ? err : read_tokenizer(ck, why);
	err = err ? err : pack_chat_read(ck->dir, &ck->chat, why);
	err = err ? err : read_tensors(ck, why);
	err = err ? err : tied_check(ck, why);
	err = err ? err : colibri_look(ck, why);
	if (err) {
		ckpt_close(ck);
		return err;
	}
	*mtp_missing = count_mtp(ck);
	*out = ck;
	return 0;
}

void ckpt_close(struct checkpoint *ck)
{
	if (!ck)
		return;
	for (size_t i = 0; i < ck->files; i++)
		st_close(&ck->file[i]);
	free(ck->file);
	free(ck->by_name);
	gguf_source_free(ck->gguf);
	json_decref(ck->stamps);
	free(ck->eos);
	free(ck->config_text);
	json_decref(ck->chat);
	free(ck->tokenizer_text);
	free(ck->tokenizer_path);
	free(ck->dir);
	free(ck);
}
