/* SPDX-License-Identifier: Apache-2.0
 *
 * Unicode normalisation form C, which the Qwen tokenizers apply to their input. The data come from
 * libutf8proc; the steps are those of the Unicode standard, section 3.11.
 */
#ifndef ENGINE_NFC_H
#define ENGINE_NFC_H

#include <stddef.h>

/* The NFC of text (valid UTF-8) in *out, allocated, *out_bytes long. *out is NULL if the text needs
 * no change for sure. Linear in time whatever the text holds. 0 or -ENOMEM. */
int nfc(const char *text, size_t bytes, char **out, size_t *out_bytes);

#endif
