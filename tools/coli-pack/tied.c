/* SPDX-License-Identifier: Apache-2.0
 *
 * Tied embeddings. See tied.h.
 */
#include "tools/coli-pack/tied.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "expertfs/fail.h"
#include "tools/coli-pack/textfile.h"

#define EMBEDDING "model.embed_tokens.weight"
#define HEAD      "lm_head.weight"
#define BLOCK     (1u << 20)

static int same_bytes(const struct st_tensor *a, const struct st_tensor *b, bool *same, char *why)
{
	char *buf = malloc(2 * BLOCK);
	int err = 0;

	if (!buf)
		return fail(why, ENOMEM, "out of memory");
	*same = a->dtype == b->dtype && a->bytes == b->bytes;
	for (uint64_t at = 0; !err && *same && at < a->bytes; at += BLOCK) {
		size_t n = a->bytes - at < BLOCK ? (size_t)(a->bytes - at) : BLOCK;
		err = text_read_at(a->file->fd, a->file->path, buf, n, a->offset + at, why);
		if (!err)
			err = text_read_at(b->file->fd, b->file->path, buf + BLOCK, n,
					   b->offset + at, why);
		*same = !err && memcmp(buf, buf + BLOCK, n) == 0;
	}
	free(buf);
	return err;
}

int tied_check(struct checkpoint *ck, char *why)
{
	const struct st_tensor *embedding = ckpt_find(ck, EMBEDDING), *head = ckpt_find(ck, HEAD);
	bool same = false;

	if (!ck->config.model.tied || !embedding || !head)
		return 0;
	int err = same_bytes(embedding, head, &same, why);
	if (err || same)
		return err;
	ck->config.model.tied = false;
	return ckpt_set_config(ck, "tie_word_embeddings", json_false(), why);
}

const char *tied_embedding(const struct checkpoint *ck)
{
	bool as_head = ck->config.model.tied && !ckpt_find(ck, EMBEDDING) && ckpt_find(ck, HEAD);

	return as_head ? HEAD : EMBEDDING;
}
