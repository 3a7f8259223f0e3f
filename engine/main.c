/* SPDX-License-Identifier: Apache-2.0
 *
 * coli-engine: the inference client. Opens and reads paths under a mount; knows no drive and no
 * cache.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/commands.h"
#include "engine/options.h"

static const char help[] =
	"usage: coli-engine COMMAND MOUNT [options]\n\n"
	"  run       continue a prompt\n"
	"  eval      loss and perplexity of a text\n"
	"  tokenize  text to token ids and back\n\n"
	"MOUNT is where expertfs is mounted, or a plain directory with the same files.\n"
	"coli-engine COMMAND --help tells the options, coli-engine --version the version; the "
	"manual page\ncoli-engine(1) tells more.\n";

/* Descriptors 0 to 2 must be taken, or text and words on speed go into the next file that is opened,
 * a session for instance. What is put there can neither be read nor written, as if it were closed
 * still. */
static void fill_standard_files(void)
{
	int fd;

	do
		fd = open("/dev/null", O_PATH);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd > STDERR_FILENO)
		close(fd);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*run)(int argc, char **argv);
	} commands[] = { { "run", cmd_run }, { "eval", cmd_eval }, { "tokenize", cmd_tokenize } };

	fill_standard_files();
	if (argc < 2)
		return say_usage("which command: run, eval or tokenize?");
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
		print_help(help, "");
	if (strcmp(argv[1], "--version") == 0)
		print_help("coli-engine " EXPERTFS_VERSION "\n", "");
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		if (strcmp(argv[1], commands[i].name) == 0)
			return commands[i].run(argc - 1, argv + 1);
	return say_usage("there is no command \"%s\"", argv[1]);
}
