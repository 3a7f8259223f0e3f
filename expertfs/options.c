/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading the command line; see options.h.
 */
#include "expertfs/options.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "expertfs/fail.h"
#include "expertfs/size.h"

static const char help[] =
	"usage: expertfs [options] STORE MOUNTPOINT\n"
	"\n"
	"Mounts the experts of the model in STORE on MOUNTPOINT. STORE is a folder that coli-pack\n"
	"made, or a GGUF file (of a split model the first one), which is used as it is.\n"
	"\n"
	"  -f, --foreground   stay in the foreground, log to stderr\n"
	"  --memory SIZE      memory for everything: 12G, 512M, or 50% of what is available\n"
	"                     (default 50%; 0 keeps no expert in memory)\n"
	"  --mode MODE        auto, passthrough or direct (default auto)\n"
	"  --policy NAME      who stays in memory (default expert); expertfs(1) has the list\n"
	"  --hot-dir DIR      copy experts that are loaded again and again to this faster drive,\n"
	"  --hot-dir-size SIZE  and keep so much of them there\n"
	"  --verify WHEN      check checksums: first (load of an expert since the start), always,\n"
	"                     never (default first)\n"
	"  --io IO            auto, uring or threads (default auto)\n"
	"  --state DIR        what is learned of a GGUF file goes here, not into a folder beside "
	"it\n"
	"  --no-warm          do not fill the memory with what was used most before\n"
	"  -o KEY[=VALUE],... allow_other; degraded (mount although experts are lost with a drive\n"
	"                     that is not there); and the options above: memory=12G, hot-dir=...\n"
	"  --help, --version\n"
	"\n"
	"umount MOUNTPOINT (or fusermount3 -u MOUNTPOINT) ends it. See expertfs(1).\n";

static int set_memory(struct options *o, const char *v, char *why)
{
	char *end;
	unsigned long percent = strtoul(v, &end, 10);

	if (end != v && strcmp(end, "%") == 0) {
		if (percent < 1 || percent > 100)
			return fail(why, EINVAL, "--memory %s: a share is 1%% to 100%%", v);
		o->memory_percent = (unsigned)percent;
		return 0;
	}
	o->memory_percent = 0;
	if (size_parse(v, &o->memory) != 0 || o->memory > INT64_MAX)
		return fail(why, EINVAL, "--memory %s: not a size (12G, 512M, 50%%)", v);
	return 0;
}

/* Which of the words v is; -EINVAL and the list if it is none. */
static int one_of(const char *key, const char *v, const char *const *words, char *why)
{
	char list[128] = "";
	size_t n = 0;

	for (int i = 0; words[i]; i++) {
		if (strcmp(v, words[i]) == 0)
			return i;
		n += (size_t)snprintf(list + n, sizeof(list) - n, "%s%s", i ? ", " : "", words[i]);
	}
	return fail(why, EINVAL, "--%s %s: it is one of %s", key, v, list);
}

/* A word that stands for a number: *out gets its place in words. */
static int set_word(const char *key, const char *v, const char *const *words, int *out, char *why)
{
	int n = one_of(key, v, words, why);

	if (n >= 0)
		*out = n;
	return n < 0 ? n : 0;
}

static int set_key(struct options *o, const char *key, const char *v, char *why)
{
	static const char *const modes[] = { "auto", "passthrough", "direct", NULL };
	static const char *const ios[] = { "auto", "uring", "threads", NULL };
	static const char *const verifies[] = { "first", "always", "never", NULL };
	int n = 0, err = 0;

	if (!v || !*v)
		return fail(why, EINVAL, "--%s needs a value", key);
	if (strcmp(key, "memory") == 0)
		return set_memory(o, v, why);
	if (strcmp(key, "policy") == 0) {
		o->policy = v;
	} else if (strcmp(key, "hot-dir") == 0) {
		o->hot_dir = v;
	} else if (strcmp(key, "state") == 0) {
		o->state = v;
	} else if (strcmp(key, "hot-dir-size") == 0) {
		if (size_parse(v, &o->hot_dir_size) != 0 || o->hot_dir_size > INT64_MAX)
			err = fail(why, EINVAL, "--hot-dir-size %s: not a size (100G)", v);
	} else if (strcmp(key, "mode") == 0) {
		err = set_word(key, v, modes, &n, why);
		o->mode = (enum serve_mode)n;
	} else if (strcmp(key, "verify") == 0) {
		err = set_word(key, v, verifies, &n, why);
		o->verify = (enum verify)n;
	} else {
		err = set_word(key, v, ios, &n, why);
		o->io = (enum drive_io)n;
	}
	return err;
}

/* What mount(8) and mount.fuse3 pass on for every file system; the mount is read-only, nosuid,
 * nodev anyway, and default_permissions comes with allow_other. */
static bool ignorable(const char *key)
{
	static const char keys[] = " ro rw suid nosuid dev nodev exec noexec sync async dirsync "
				   "atime noatime nodiratime"
				   " relatime strictatime lazytime nosymfollow silent mand auto "
				   "noauto nofail user nouser"
				   " users group owner _netdev defaults default_permissions ";
	char word[32];

	if (snprintf(word, sizeof(word), " %s ", key) < (int)sizeof(word) && !strchr(key, ' ') &&
	    strstr(keys, word))
		return true;
	return strncmp(key, "x-", 2) == 0;
}

static int set_mount_options(struct options *o, char *list, char *why)
{
	static const char *const keys[] = { "memory", "mode",    "policy",       "io",
					    "verify", "hot-dir", "hot-dir-size", "state" };
	int err = 0;

	for (char *save, *one = strtok_r(list, ",", &save); one && !err;
	     one = strtok_r(NULL, ",", &save)) {
		char *value = strchr(one, '=');
		bool known = false;
		if (value)
			*value++ = 0;
		for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
			known = known || strcmp(one, keys[i]) == 0;
		if (known)
			err = set_key(o, one, value, why);
		else if (strcmp(one, "allow_other") == 0)
			o->allow_other = true;
		else if (strcmp(one, "degraded") == 0)
			o->degraded = true;
		else if (strcmp(one, "no-warm") == 0)
			o->no_warm = true;
		else if (strcmp(one, "remount") == 0)
			err = fail(why, EINVAL, "-o remount: umount it and mount it anew");
		else if (!ignorable(one))
			err = fail(why, EINVAL, "-o %s: unknown option", one);
	}
	return err;
}

/* word: the last one that getopt is done with, which is not yet that of a letter among others. */
static int unknown(const char *word, char *why)
{
	char letter[] = { '-', (char)optopt, 0 };

	return fail(why, EINVAL, "unknown option %s; see expertfs --help",
		    optopt && !strchr(word, '=') ? letter : word);
}

int options_parse(int argc, char **argv, struct options *o, char *why)
{
	static const struct option longs[] = { { "foreground", no_argument, NULL, 'f' },
					       { "memory", required_argument, NULL, 'K' },
					       { "mode", required_argument, NULL, 'K' },
					       { "policy", required_argument, NULL, 'K' },
					       { "io", required_argument, NULL, 'K' },
					       { "verify", required_argument, NULL, 'K' },
					       { "hot-dir", required_argument, NULL, 'K' },
					       { "state", required_argument, NULL, 'K' },
					       { "hot-dir-size", required_argument, NULL, 'K' },
					       { "no-warm", no_argument, NULL, 'W' },
					       { "help", no_argument, NULL, 'h' },
					       { "version", no_argument, NULL, 'V' },
					       { 0 } };
	int c, at = 0, err = 0;

	*o = (struct options){ .memory = UINT64_MAX, .policy = "expert" };
	opterr = 0;
	while (!err && (c = getopt_long(argc, argv, ":fho:", longs, &at)) != -1) {
		switch (c) {
		case 'f':
			o->foreground = true;
			break;
		case 'K':
			err = set_key(o, longs[at].name, optarg, why);
			break;
		case 'o':
			err = set_mount_options(o, optarg, why);
			break;
		case 'W':
			o->no_warm = true;
			break;
		case 'h':
			fputs(help, stdout);
			return 1;
		case 'V':
			puts("expertfs " EXPERTFS_VERSION);
			return 1;
		case ':':
			err = fail(why, EINVAL, "%s needs a value", argv[optind - 1]);
			break;
		default:
			err = unknown(argv[optind - 1], why);
		}
	}
	if (!err && argc - optind != 2)
		err = fail(why, EINVAL,
			   "usage: expertfs [options] STORE MOUNTPOINT; see expertfs --help");
	if (!err && !o->hot_dir != !o->hot_dir_size)
		err = fail(why, EINVAL, "--hot-dir and --hot-dir-size go together");
	if (!err) {
		o->store = argv[optind];
		o->mountpoint = argv[optind + 1];
	}
	return err;
}
