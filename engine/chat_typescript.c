/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON schemas as TypeScript: see chat_typescript.h.
 */
#include "engine/chat_typescript.h"

#include <errno.h>
#include <string.h>

/* Deepest nesting of schemas; the JSON reader's limit is higher than what a stack should hold. */
#define DEPTH_MAX 64

static bool type_is(const json_t *schema, const char *type)
{
	const char *is = json_string_value(json_object_get(schema, "type"));

	return is && strcmp(is, type) == 0;
}

static void put_nullable(struct chat_writer *w, const json_t *schema)
{
	if (is_true(json_object_get(schema, "nullable")))
		put(w, " | null");
}

/* Is the name in the list of required ones? */
static bool required(const json_t *schema, const char *name)
{
	const json_t *list = json_object_get(schema, "required");

	for (size_t i = 0; i < json_array_size(list); i++) {
		const char *is = json_string_value(json_array_get(list, i));
		if (is && strcmp(is, name) == 0)
			return true;
	}
	return false;
}

static int put_joined(struct chat_writer *w, const json_t *list, const char *between, char *why)
{
	for (size_t i = 0; i < json_array_size(list); i++) {
		if (!json_is_string(json_array_get(list, i)))
			return fail(why, EINVAL,
				    "a tool has a list of types or values that are no strings");
		put(w, i ? between : "");
		put_from_outside(w, str_of_json(json_array_get(list, i)));
	}
	return 0;
}

static int put_type(struct chat_writer *w, const json_t *schema, int depth, char *why);

static size_t characters(const char *s, size_t n)
{
	size_t count = 0;

	for (size_t i = 0; i < n; i++)
		count += ((unsigned char)s[i] & 0xC0) != 0x80;
	return count;
}

/* The type of an array's elements, unless it is long. */
static int put_array(struct chat_writer *w, const json_t *schema, int depth, char *why)
{
	const json_t *items = json_object_get(schema, "items");
	int rc = 0;

	if (is_true(items)) {
		struct chat_writer inner = { 0 };
		rc = put_type(&inner, items, depth + 1, why);
		struct str type = { inner.t.text ? inner.t.text : "", inner.t.bytes };
		bool simple = type_is(items, "string") || type_is(items, "number") ||
			      type_is(items, "integer") || type_is(items, "boolean");
		if (type_is(items, "string"))
			type = str_of("string");
		if (!simple && (characters(type.at, type.n) > 50 ||
				(type.n == 15 && memcmp(type.at, "object | object", 15) == 0)))
			type = str_of("any");
		put_from_outside(w, type);
		w->failed |= inner.failed;
		chat_text_free(&inner.t);
	} else {
		put(w, "any");
	}
	put(w, "[]");
	put_nullable(w, schema);
	return rc;
}

/* The template wants to write "any" if one of them is an object, but the variable that it sets in a
 * loop is gone behind it. */
static int put_one_of(struct chat_writer *w, const json_t *list, int depth, char *why)
{
	size_t n = json_array_size(list);
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < n; i++) {
		const json_t *variant = json_array_get(list, i);
		const json_t *text = json_object_get(variant, "description");
		const json_t *value = json_object_get(variant, "default");
		rc = put_type(w, variant, depth + 1, why);
		if (is_true(text)) {
			put(w, "// ");
			put_from_outside(w, str_of_json(text));
		}
		if (value) {
			put(w, "                    // default: ");
			put_json(w, value);
		}
		put(w, i + 1 < n ? " | \n" : "");
	}
	return rc;
}

static int put_object(struct chat_writer *w, const json_t *schema, int depth, char *why)
{
	const json_t *properties = json_object_get(schema, "properties");
	const char *name, *between = "";
	json_t *property;

	if (!is_true(properties)) {
		put(w, "object");
		return 0;
	}
	put(w, "{\n");
	json_object_foreach((json_t *)properties, name, property)
	{
		put(w, between);
		between = ", ";
		put_from_outside(w, str_of(name));
		put(w, required(schema, name) ? "" : "?");
		put(w, ": \n                ");
		int rc = put_type(w, property, depth + 1, why);
		if (rc != 0)
			return rc;
	}
	put(w, "}");
	return 0;
}

static int put_type(struct chat_writer *w, const json_t *schema, int depth, char *why)
{
	const json_t *type = json_object_get(schema, "type");

	if (depth > DEPTH_MAX)
		return fail(why, EINVAL, "a tool's parameters are nested more than %d deep",
			    DEPTH_MAX);
	if (type_is(schema, "array"))
		return put_array(w, schema, depth, why);
	if (json_array_size(type))
		return put_joined(w, type, " | ", why);
	if (is_true(json_object_get(schema, "oneOf")))
		return put_one_of(w, json_object_get(schema, "oneOf"), depth, why);
	if (type_is(schema, "object"))
		return put_object(w, schema, depth, why);
	if (type_is(schema, "string") && is_true(json_object_get(schema, "enum"))) {
		put(w, "\"");
		int rc = put_joined(w, json_object_get(schema, "enum"), "\" | \"", why);
		put(w, "\"");
		return rc;
	}
	if (type_is(schema, "string")) {
		put(w, "string");
		put_nullable(w, schema);
	} else {
		put(w, type_is(schema, "number") || type_is(schema, "integer") ? "number"
		       : type_is(schema, "boolean")                            ? "boolean"
									       : "any");
	}
	return 0;
}

static int put_default(struct chat_writer *w, const json_t *schema, char *why)
{
	const json_t *value = json_object_get(schema, "default");
	bool one_of = is_true(json_object_get(schema, "oneOf"));
	bool as_text = one_of || is_true(json_object_get(schema, "enum"));

	if (!value)
		return 0;
	if (as_text && !json_is_string(value))
		return fail(why, EINVAL, "a tool has a default that is no string");
	put(w, one_of && !is_true(json_object_get(schema, "enum")) ? "// default: "
								   : ", // default: ");
	if (as_text)
		put_from_outside(w, str_of_json(value));
	else
		put_json(w, value);
	return 0;
}

static int put_parameters(struct chat_writer *w, const json_t *parameters, char *why)
{
	const char *name;
	json_t *schema;

	json_object_foreach(json_object_get(parameters, "properties"), name, schema)
	{
		const json_t *text = json_object_get(schema, "description");
		if (is_true(text)) {
			put(w, "// ");
			put_from_outside(w, str_of_json(text));
			put(w, "\n");
		}
		put_from_outside(w, str_of(name));
		put(w, required(parameters, name) ? ": " : "?: ");
		int rc = put_type(w, schema, 0, why);
		if (rc == 0)
			rc = put_default(w, schema, why);
		if (rc != 0)
			return rc;
		put(w, ",\n");
	}
	return 0;
}

int put_typescript(struct chat_writer *w, const json_t *tools, char *why)
{
	int rc = 0;

	put(w, "## functions\n\nnamespace functions {\n\n");
	for (size_t i = 0; rc == 0 && i < json_array_size(tools); i++) {
		const json_t *tool = json_object_get(json_array_get(tools, i), "function");
		const json_t *parameters = json_object_get(tool, "parameters");
		const json_t *name = json_object_get(tool, "name");
		const json_t *text = json_object_get(tool, "description");
		if (!json_is_string(name) || !json_is_string(text))
			return fail(why, EINVAL,
				    "tool number %zu has no function with name and description", i);
		put(w, "// ");
		put_from_outside(w, str_of_json(text));
		put(w, "\ntype ");
		put_from_outside(w, str_of_json(name));
		put(w, " = ");
		if (is_true(parameters) && is_true(json_object_get(parameters, "properties"))) {
			put(w, "(_: {\n");
			rc = put_parameters(w, parameters, why);
			put(w, "}) => any;\n\n");
		} else {
			put(w, "() => any;\n\n");
		}
	}
	put(w, "} // namespace functions");
	return rc;
}
