/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of pre-tokenizers: see gguf_pre.h.
 */
#include "expertfs/gguf_pre.h"

#include <stddef.h>
#include <string.h>

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define BLANKS       "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

/* Llama-3 and GLM take up to three digits together, Qwen each on its own. */
#define WORDS_AND(digits)                                                                          \
	CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits                                      \
		     "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" BLANKS

#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define O200K                                                                                      \
	"[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" CONTRACTIONS "?|[^\\r\\n\\p{L}\\p{N}]?" UPPER \
	"+" LOWER "*" CONTRACTIONS "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" BLANKS

#define DEEPSEEK_V3                                                                                \
	"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"                                    \
	"|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|" BLANKS

/* The cased letters of DeepSeek-V2's file, which lists them. */
#define DEEPSEEK_LETTERS                                                                           \
	"A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-Ί"                            \
	"ΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿ"                           \
	"ᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙ"                              \
	"ὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ί"                               \
	"ῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭ"                             \
	"ℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳ"                             \
	"Ꙁ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚ"                          \
	"ａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟"                            \
	"𞤀-𞥃"

#define DEEPSEEK_MARKS "\\s?[!-/:-~！-／：-～‘-‟　-。]+"
#define DEEPSEEK_CJK   "[一-龥\xE0\xA0\x80-一가-\xED\x9F\xBF]+" /* with U+0800 and U+D7FF */

static const struct gguf_pre table[] = {
	{ .name = { "glm4", "chatglm-bpe" },
	  .step = { WORDS_AND("\\p{N}{1,3}") },
	  .ignore_merges = true,
	  .no_bos = true },
	{ .name = { "llama-bpe", "llama3", "llama-v3" },
	  .step = { WORDS_AND("\\p{N}{1,3}") },
	  .ignore_merges = true,
	  .add_bos = true },
	{ .name = { "qwen2", "deepseek-r1-qwen" }, .step = { WORDS_AND("\\p{N}") }, .nfc = true },
	{ .name = { "deepseek-v3" },
	  .step = { "\\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+", DEEPSEEK_V3 } },
	{ .name = { "deepseek-llm" },
	  .step = { "[\\r\\n]", "\\s?[" DEEPSEEK_LETTERS "]+", DEEPSEEK_MARKS, "\\s+$",
		    DEEPSEEK_CJK, "\\p{N}" } },
	{ .name = { "deepseek-coder" },
	  .step = { "[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", DEEPSEEK_CJK, "\\p{N}" } },
	{ .name = { "gpt-4o" }, .step = { O200K }, .ignore_merges = true },
	{ .name = { "olmo", "mpt" }, .step = { GPT2 }, .nfc = true },
	{ .name = { "gpt-2", "default" }, .step = { GPT2 } },
};

const struct gguf_pre *gguf_pre_find(const char *name)
{
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		for (int k = 0; k < GGUF_PRE_NAMES && table[i].name[k]; k++)
			if (strcmp(table[i].name[k], name) == 0)
				return &table[i];
	return NULL;
}
