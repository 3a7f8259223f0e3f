/* SPDX-License-Identifier: Apache-2.0
 *
 * The subcommands of coli-engine. argv[0] is the subcommand's name; each returns the exit status.
 */
#ifndef ENGINE_COMMANDS_H
#define ENGINE_COMMANDS_H

int cmd_run(int argc, char **argv);
int cmd_eval(int argc, char **argv);
int cmd_tokenize(int argc, char **argv);

#endif
