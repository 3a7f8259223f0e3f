/* SPDX-License-Identifier: Apache-2.0
 *
 * tokenizer.json of a mounted GGUF file; see gguf_model.h.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "expertfs/fail.h"
#include "expertfs/gguf_model.h"
#include "expertfs/log.h"

int gguf_vocab_json(const struct gguf *g, char **text, char *why)
{
	struct gguf_text t;
	int err = gguf_string(g, "tokenizer.huggingface.json", &t, why);

	if (err == -ENOENT) {
		log_line(LOG_WARNING,
			 "%s: its vocabulary cannot be shown as tokenizer.json: an engine cannot "
			 "make "
			 "text of it",
			 g->part[0].path);
		t = (struct gguf_text){ "{}", 2 };
	} else if (err) {
		return err;
	}
	*text = strndup(t.at, t.bytes);
	return *text ? 0 : fail(why, ENOMEM, "out of memory for tokenizer.json");
}
