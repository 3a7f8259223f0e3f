/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading checked values out of JSON objects that strangers wrote.
 *
 * A key that is absent and a key that is null are the same thing. Every function returns 0, or
 * -EINVAL with a sentence that names the file, the key and what stands there.
 */
#ifndef ENGINE_JSONREAD_H
#define ENGINE_JSONREAD_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct json_in {
	const json_t *obj; /* borrowed */
	const char *where; /* "DIR/model.json, config": begins the sentences */
};

/* As a default: the key must be there. */
#define JSON_REQUIRED INT64_MIN

/* NULL if absent or null. */
const json_t *in_at(const struct json_in *in, const char *key);

/* An integer within [lo, hi]; a real number without a fraction counts as one. */
int in_int(const struct json_in *in, const char *key, int64_t lo, int64_t hi, int64_t absent,
	   int64_t *out, char *why);
int in_int32(const struct json_in *in, const char *key, int lo, int hi, int64_t absent, int *out,
	     char *why);
/* A finite number within [lo, hi]; absent = NAN: required. */
int in_number(const struct json_in *in, const char *key, double lo, double hi, double absent,
	      double *out, char *why);
int in_bool(const struct json_in *in, const char *key, bool absent, bool *out, char *why);
/* Borrowed from the object; *out = absent if it is not there; absent = NULL: required. */
int in_text(const struct json_in *in, const char *key, const char *absent, const char **out,
	    char *why);
/* Arrays and objects are required, borrowed. */
int in_array(const struct json_in *in, const char *key, const json_t **out, char *why);
int in_object(const struct json_in *in, const char *key, const json_t **out, char *why);

#endif
