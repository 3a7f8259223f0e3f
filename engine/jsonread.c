/* SPDX-License-Identifier: Apache-2.0
 *
 * Checked values out of JSON objects (jansson).
 */
#include "engine/jsonread.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>

#include "engine/fail.h"

const json_t *in_at(const struct json_in *in, const char *key)
{
	const json_t *v = json_object_get(in->obj, key);

	return v && !json_is_null(v) ? v : NULL;
}

static int absent_key(const struct json_in *in, const char *key, char *why)
{
	return fail(why, EINVAL, "%s: \"%s\" is missing", in->where, key);
}

int in_int(const struct json_in *in, const char *key, int64_t lo, int64_t hi, int64_t absent,
	   int64_t *out, char *why)
{
	const json_t *v = in_at(in, key);
	double d = json_number_value(v);

	if (!v) {
		*out = absent;
		return absent == JSON_REQUIRED ? absent_key(in, key, why) : 0;
	}
	if (json_is_integer(v))
		*out = json_integer_value(v);
	else if (json_is_real(v) && d == floor(d) && fabs(d) < 0x1p53)
		*out = (int64_t)d;
	else
		return fail(why, EINVAL, "%s: \"%s\" is not an integer", in->where, key);
	if (*out < lo || *out > hi)
		return fail(why, EINVAL,
			    "%s: \"%s\" is %" PRId64 ", which is not between %" PRId64
			    " and %" PRId64,
			    in->where, key, *out, lo, hi);
	return 0;
}

int in_int32(const struct json_in *in, const char *key, int lo, int hi, int64_t absent, int *out,
	     char *why)
{
	int64_t v = 0;
	int r = in_int(in, key, lo, hi, absent, &v, why);

	*out = r ? 0 : (int)v;
	return r;
}

int in_number(const struct json_in *in, const char *key, double lo, double hi, double absent,
	      double *out, char *why)
{
	const json_t *v = in_at(in, key);

	if (!v) {
		*out = absent;
		return isnan(absent) ? absent_key(in, key, why) : 0;
	}
	if (!json_is_number(v))
		return fail(why, EINVAL, "%s: \"%s\" is not a number", in->where, key);
	*out = json_number_value(v);
	if (!(*out >= lo && *out <= hi))
		return fail(why, EINVAL, "%s: \"%s\" is %g, which is not between %g and %g",
			    in->where, key, *out, lo, hi);
	return 0;
}

int in_bool(const struct json_in *in, const char *key, bool absent, bool *out, char *why)
{
	const json_t *v = in_at(in, key);

	*out = v ? json_is_true(v) : absent;
	if (v && !json_is_boolean(v))
		return fail(why, EINVAL, "%s: \"%s\" is neither true nor false", in->where, key);
	return 0;
}

int in_text(const struct json_in *in, const char *key, const char *absent, const char **out,
	    char *why)
{
	const json_t *v = in_at(in, key);

	*out = v ? json_string_value(v) : absent;
	if (v && !*out)
		return fail(why, EINVAL, "%s: \"%s\" is not a string", in->where, key);
	return *out ? 0 : absent_key(in, key, why);
}

int in_array(const struct json_in *in, const char *key, const json_t **out, char *why)
{
	*out = in_at(in, key);
	if (!json_is_array(*out))
		return fail(why, EINVAL, "%s: there is no array \"%s\"", in->where, key);
	return 0;
}

int in_object(const struct json_in *in, const char *key, const json_t **out, char *why)
{
	*out = in_at(in, key);
	if (!json_is_object(*out))
		return fail(why, EINVAL, "%s: there is no object \"%s\"", in->where, key);
	return 0;
}
