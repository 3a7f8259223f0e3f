/* SPDX-License-Identifier: Apache-2.0
 *
 * What llama.cpp computes of a GGUF file, for golden data: make_llama_golden.py builds and runs it.
 *
 *	llama_logits MODEL.gguf TOKENS <PROMPTS
 *
 * A prompt is a line of token ids. For each it prints a line of JSON: logits after the prompt, TOKENS
 * greedy tokens, and the best logit minus the second of each. Keys and values are kept as f32, the
 * prompt is one batch, one thread.
 */
#include <ggml-backend.h>
#include <llama.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int best_of(const float *x, int n, float *margin)
{
	int best = 0;
	float second = -1e30f;

	for (int i = 1; i < n; i++)
		if (x[i] > x[best])
			best = i;
	for (int i = 0; i < n; i++)
		if (i != best && x[i] > second)
			second = x[i];
	*margin = x[best] - second;
	return best;
}

static void run(struct llama_context *ctx, int vocab, llama_token *ids, int n, int tokens)
{
	int greedy[256];
	float margin[256];

	llama_memory_clear(llama_get_memory(ctx), true);
	for (int i = 0; i < tokens; i++) {
		if (llama_decode(ctx, llama_batch_get_one(i ? &ids[n - 1] : ids, i ? 1 : n)) != 0)
			exit(1);
		const float *x = llama_get_logits_ith(ctx, -1);
		for (int k = 0; i == 0 && k < vocab; k++)
			printf("%s%.6f", k ? ", " : "{\"last_logits\": [", (double)x[k]);
		greedy[i] = ids[n++] = best_of(x, vocab, &margin[i]);
	}
	for (int i = 0; i < tokens; i++)
		printf("%s%d", i ? ", " : "], \"greedy\": [", greedy[i]);
	for (int i = 0; i < tokens; i++)
		printf("%s%.6f", i ? ", " : "], \"margin\": [", (double)margin[i]);
	printf("]}\n");
}

int main(int argc, char **argv)
{
	static llama_token ids[2048];
	char line[16384];
	int tokens = argc == 3 ? atoi(argv[2]) : 0;

	if (tokens < 1 || tokens > 256)
		return 2;
	ggml_backend_load_all();
	struct llama_model *m = llama_model_load_from_file(argv[1], llama_model_default_params());
	struct llama_context_params p = llama_context_default_params();
	p.n_ctx = p.n_batch = p.n_ubatch = 1024;
	p.n_threads = p.n_threads_batch = 1;
	p.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
	p.type_k = p.type_v = GGML_TYPE_F32;
	struct llama_context *ctx = m ? llama_init_from_model(m, p) : NULL;
	if (!ctx)
		return 1;
	while (fgets(line, sizeof(line), stdin)) {
		int n = 0;
		for (char *s = strtok(line, " \n"); s && n < 1024; s = strtok(NULL, " \n"))
			ids[n++] = atoi(s);
		run(ctx, llama_vocab_n_tokens(llama_model_get_vocab(m)), ids, n, tokens);
	}
	llama_free(ctx);
	llama_model_free(m);
	return 0;
}
