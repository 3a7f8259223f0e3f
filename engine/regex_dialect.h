/* SPDX-License-Identifier: Apache-2.0
 *
 * The regular expressions in a tokenizer.json are written for Oniguruma with Ruby's syntax
 * (the tokenizers library); ours is PCRE2. Most of them mean the same in both. This finds what does
 * not.
 */
#ifndef ENGINE_REGEX_DIALECT_H
#define ENGINE_REGEX_DIALECT_H

/* Longest regular expression that is accepted, in bytes. */
#define REGEX_MAX 65536

/* *out: the expression for PCRE2 with UTF and UCP, of the same meaning, allocated. Rewritten are \s
 * and \S (PCRE2 counts U+180E as a space), $, \v, \uHHHH and scripts (\p{Han}: PCRE2 takes script
 * extensions). 0, -ENOMEM, or -EINVAL with the sentence in why if it contains something that is not
 * the same in both and that we do not rewrite: \w, \b, ^, nested and intersected classes, inline
 * options but i... */
int regex_translate(const char *regex, char **out, char *why);

#endif
