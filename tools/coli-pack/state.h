/* SPDX-License-Identifier: Apache-2.0
 *
 * STORE.partial/pack.state: how an interrupted pack is recognised and where it goes on.
 *
 *	coli-pack 1
 *	store_id 00112233445566778899aabbccddeeff
 *	dense 17                dense tensors that are whole and on disk
 *	durable 4096 8192       for each drive: bytes of its shard that are whole and on disk
 *	--
 *	identity                options, checkpoint files and drives, one a line, to be compared
 *
 * It is replaced by rename after the data that it speaks of has been synced, so it never promises
 * too much. What lies in the shards beyond it is looked at record by record (resume.h).
 */
#ifndef COLI_PACK_STATE_H
#define COLI_PACK_STATE_H

#include "tools/coli-pack/output.h"

#define STATE_NAME "pack.state"
#define STATE_NEW  "pack.state.new" /* the next one, while it is written */

struct state {
	uint8_t store_id[STORE_ID_SIZE];
	char *identity; /* NUL-terminated */
	uint64_t dense;
	uint32_t drives;
	uint64_t *durable;
};

/* What must be equal for a pack to go on: everything that the store's bytes depend on. NULL without
 * memory. model_json is the text of the store's model.json. */
char *state_identity(const struct plan *p, const struct output *o, const char *model_json);

/* An empty state for the plan; takes identity over. */
int state_init(struct state *s, const struct output *o, char *identity, char *why);
void state_free(struct state *s);

int state_save(const struct state *s, int dir_fd, const char *dir, char *why);
/* -ENOENT: there is none. -EINVAL: it is damaged. */
int state_load(struct state *s, const char *dir, char *why);

/* The first line of b that differs from a's, both without their newlines and cut to fit buf[2];
 * false if they are equal. */
bool state_differs(const char *a, const char *b, char buf[2][128]);

/* The speeds that a pack of n drives was planned with; false if identity has no such line. */
bool state_speeds(const char *identity, enum speeds_from *from, uint64_t *speed, uint32_t n);

/* The path of the i-th shard that identity names, in new memory; NULL after the last. */
char *state_shard_path(const char *identity, uint32_t i);

#endif
