/* SPDX-License-Identifier: Apache-2.0
 *
 * expertctl drives: what lies on which drive and how it does, from MOUNT/.expertfs/drives; and how
 * fast each one really reads.
 */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "expertfs/fail.h"
#include "expertfs/probe.h"
#include "expertfs/size.h"
#include "expertfs/store.h"
#include "tools/expertctl/expertctl.h"
#include "tools/expertctl/mountfile.h"

static double number(const json_t *o, const char *name)
{
	double v = json_number_value(json_object_get(o, name));

	return v > 0 && v < 0x1p63 ? v : 0;
}

/* Without what would move the terminal's cursor. */
static const char *plain(const json_t *o, const char *name, char *buf)
{
	const char *text = json_string_value(json_object_get(o, name));

	snprintf(buf, PATH_MAX, "%s", text ? text : "-");
	for (char *p = buf; *p; p++)
		if ((unsigned char)*p < ' ' || *p == 0x7f)
			*p = '?';
	return buf;
}

static const char *size(const json_t *o, const char *name, char *buf)
{
	return size_text((uint64_t)number(o, name), buf);
}

/* A number as text; "-" for a speed that is not known. */
static const char *rate(double bytes_per_s, char *buf)
{
	if (bytes_per_s > 0)
		snprintf(buf, 16, "%.2f", bytes_per_s / 1e9);
	else
		snprintf(buf, 16, "-");
	return buf;
}

static void show_drives(const json_t *drives)
{
	char a[16], b[16], c[16], d[16], text[PATH_MAX], state[PATH_MAX];
	double all = 0;
	const json_t *o;
	size_t i;

	json_array_foreach(drives, i, o)
	{
		if (number(o, "number") < STORE_HOT_DRIVE)
			all += number(o, "bytes");
	}
	printf("%5s  %-8s %6s %8s %9s %6s %9s %9s %6s  %s\n", "drive", "state", "GB/s", "experts",
	       "bytes", "share", "read", "waiting", "errors", "path");
	json_array_foreach(drives, i, o)
	{
		double share = all > 0 ? 100 * number(o, "bytes") / all : 0;
		printf("%5.0f  %-8s %6s %8.0f %9s %4.0f %% %9s %9s %6.0f  %s\n",
		       number(o, "number"), plain(o, "state", state), rate(number(o, "speed"), a),
		       number(o, "experts"), size(o, "bytes", b), share, size(o, "bytes_read", c),
		       size(o, "queued", d), number(o, "errors"), plain(o, "path", text));
	}
}

static void show_tasks(const json_t *tasks)
{
	char a[16], b[16], c[16], command[PATH_MAX], state[PATH_MAX], error[PATH_MAX];
	const json_t *o;
	size_t i;

	json_array_foreach(tasks, i, o)
	{
		printf("%s%s: %s", i ? "" : "\n", plain(o, "command", command),
		       plain(o, "state", state));
		if (number(o, "experts_total") > 0)
			printf(", %.0f of %.0f experts, %s of %s", number(o, "experts_done"),
			       number(o, "experts_total"), size(o, "bytes_done", a),
			       size(o, "bytes_total", b));
		if (number(o, "bytes_per_s") > 0)
			printf(", %s/s, %.0f s left", size(o, "bytes_per_s", c),
			       number(o, "seconds_left"));
		if (json_object_get(o, "error"))
			printf(": %s", plain(o, "error", error));
		putchar('\n');
	}
}

static int parse(const char *mount, const char *text, size_t bytes, json_t **root, char *why)
{
	*root = json_loadb(text, bytes, 0, NULL);
	if (json_is_object(*root))
		return 0;
	json_decref(*root);
	return fail(why, EBADMSG, "%s/.expertfs/drives is no JSON object", mount);
}

static int show(const char *mount, bool json, char *why)
{
	char *text = NULL;
	size_t bytes;
	json_t *root;
	int err = mountfile_read(mount, "drives", &text, &bytes, why);

	if (!err && json) {
		fwrite(text, 1, bytes, stdout);
		putchar('\n');
	} else if (!err && (err = parse(mount, text, bytes, &root, why)) == 0) {
		show_drives(json_object_get(root, "drives"));
		show_tasks(json_object_get(root, "tasks"));
		json_decref(root);
	}
	free(text);
	if (!err && (fflush(stdout) != 0 || ferror(stdout)))
		err = fail(why, errno, "standard output: %s", strerror(errno));
	return err;
}

/* -- probe -------------------------------------------------------------------------------------- */

static void probe_one(unsigned n, const char *path, bool *failed)
{
	struct probe_result r;
	char why[WHY_MAX];

	if (probe_file(path, PROBE_IO_AUTO, &r, why) != 0) {
		fprintf(stderr, "expertctl: %s\n", why);
		*failed = true;
	} else if (!r.honest) {
		printf("%5u  not measured: %s  %s\n", n, r.text, path);
	} else {
		printf("%5u  %6.2f GB/s, a piece of 1 MiB in %.2f ms (half of them), %.2f ms (99 "
		       "of "
		       "100)  %s\n",
		       n, (double)r.bytes_per_s / 1e9, (double)r.p50_ns / 1e6,
		       (double)r.p99_ns / 1e6, path);
	}
	fflush(stdout);
}

static int probe_mount(const char *mount, bool *failed, char *why)
{
	char *text = NULL;
	const json_t *o;
	json_t *root;
	size_t bytes, i;
	int err = mountfile_read(mount, "drives", &text, &bytes, why);

	err = err ? err : parse(mount, text, bytes, &root, why);
	free(text);
	if (err)
		return err;
	json_array_foreach(json_object_get(root, "drives"), i, o)
	{
		const char *path = json_string_value(json_object_get(o, "path"));
		if (path)
			probe_one((unsigned)number(o, "number"), path, failed);
	}
	json_decref(root);
	return 0;
}

static int probe_store(const char *dir, bool *failed, char *why)
{
	struct store *s;
	int err = store_open(dir, &s, why);

	if (err)
		return err;
	for (uint32_t d = 0; d < s->drives; d++)
		if (s->drive[d].path)
			probe_one(d, s->drive[d].path, failed);
	store_close(s);
	return 0;
}

static int probe(const char *place, char *why)
{
	bool failed = false;
	int err = mountfile_is_store(place) ? probe_store(place, &failed, why)
					    : probe_mount(place, &failed, why);

	return err ? err : failed ? fail(why, EIO, "not every drive could be measured") : 0;
}

/* ----------------------------------------------------------------------------------------------- */

static int run(char **argv)
{
	static const char *const verbs[] = { "probe", "continue", "cancel" };
	const char *words[2], *place = CTL_DEFAULT_MOUNT, *verb = NULL;
	bool json = false;
	char why[WHY_MAX];
	int n, err, status = ctl_split(argv, words, 2, &n, "--json", &json);

	if (status)
		return status;
	for (int i = 0; i < n; i++) {
		bool is_verb = false;
		for (int v = 0; v < 3; v++)
			is_verb = is_verb || strcmp(words[i], verbs[v]) == 0;
		if (is_verb && !verb)
			verb = words[i];
		else if (i + 1 == n)
			place = words[i];
		else
			return ctl_usage("drives: %s is neither probe, continue nor cancel",
					 words[i]);
	}
	if (!verb)
		err = show(place, json, why);
	else if (strcmp(verb, "probe") == 0)
		err = probe(place, why);
	else
		err = mountfile_write(place, "drives",
				      strcmp(verb, "cancel") ? "continue\n" : "cancel\n", why);
	if (err)
		fprintf(stderr, "expertctl: %s\n", why);
	return err ? 1 : 0;
}

const struct ctl_command ctl_drives = {
	.name = "drives",
	.usage = "[probe | continue | cancel] [MOUNT | STORE] [--json]",
	.about = "list the drives: state, speed, what lies on them; and the moves between them\n"
		 "probe: measure how fast each one reads; continue, cancel: a move that stopped",
	.run = run,
};
