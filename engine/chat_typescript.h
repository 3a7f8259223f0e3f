/* SPDX-License-Identifier: Apache-2.0
 *
 * Tools as gpt-oss knows them: JSON schemas of their parameters as TypeScript types, with the very
 * spaces and newlines of its template.
 */
#ifndef ENGINE_CHAT_TYPESCRIPT_H
#define ENGINE_CHAT_TYPESCRIPT_H

#include "engine/chat_parts.h"

/* "namespace functions { ... }". 0, or -EINVAL with the sentence for a tool that the template does
 * not take. */
int put_typescript(struct chat_writer *w, const json_t *tools, char *why);

#endif
