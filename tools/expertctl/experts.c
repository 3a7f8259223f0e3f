/* SPDX-License-Identifier: Apache-2.0
 *
 * expertctl pin, unpin, warm, evict: a word to the daemon about experts. The words are understood
 * there (expertfs/select.h); here they become lines of MOUNT/.expertfs/pin and so on.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "expertfs/fail.h"
#include "tools/expertctl/expertctl.h"
#include "tools/expertctl/mountfile.h"

#define MAX_WORDS 4096

/* "top 4G" is one name in two words; all the others are a line each. */
static char *lines(const char *const *words, int n)
{
	size_t bytes = 1;
	char *text, *at;

	for (int i = 0; i < n; i++)
		bytes += strlen(words[i]) + 1;
	at = text = malloc(bytes);
	for (int i = 0; text && i < n; i++)
		at += sprintf(at, "%s%c", words[i], strcmp(words[i], "top") == 0 ? ' ' : '\n');
	if (text)
		*at = '\0';
	return text;
}

/* Without a word about experts: shows what is pinned, if that is the file; else a usage error. */
static int order(const char *name, bool shows, char **argv)
{
	const char *room[MAX_WORDS], **words = room, *mount = CTL_DEFAULT_MOUNT;
	char why[WHY_MAX], *text;
	int n, err, status = ctl_split(argv, room, MAX_WORDS, &n, NULL, NULL);

	if (status)
		return status;
	if (n > 0 && mountfile_is_mount(words[0])) {
		mount = *words++;
		n--;
	}
	if (n == 0 && !shows)
		return ctl_usage("%s needs to know which experts: 3/117, 3/0-15, 3/all, top 4G",
				 name);
	text = lines(words, n);
	if (!text)
		err = fail(why, ENOMEM, "out of memory");
	else
		err = n ? mountfile_write(mount, name, text, why)
			: mountfile_print(mount, name, why);
	free(text);
	if (err)
		fprintf(stderr, "expertctl: %s\n", why);
	return err ? 1 : 0;
}

static int run_pin(char **argv)
{
	return order("pin", true, argv);
}

static int run_unpin(char **argv)
{
	return order("unpin", false, argv);
}

static int run_warm(char **argv)
{
	return order("warm", false, argv);
}

static int run_evict(char **argv)
{
	return order("evict", false, argv);
}

const struct ctl_command ctl_pin = {
	.name = "pin",
	.usage = "[MOUNT] [EXPERTS...]",
	.about = "load experts and keep them in memory: 3/117, 3/0-15, 3/all, all, top 4G (the\n"
		 "hottest that fit into it); without any: list those that are pinned",
	.run = run_pin,
};

const struct ctl_command ctl_unpin = {
	.name = "unpin",
	.usage = "[MOUNT] EXPERTS...",
	.about = "let them go again when there is no room",
	.run = run_unpin,
};

const struct ctl_command ctl_warm = {
	.name = "warm",
	.usage = "[MOUNT] EXPERTS...",
	.about = "load experts in the background",
	.run = run_warm,
};

const struct ctl_command ctl_evict = {
	.name = "evict",
	.usage = "[MOUNT] EXPERTS...",
	.about = "drop experts from memory",
	.run = run_evict,
};
