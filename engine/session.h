/* SPDX-License-Identifier: Apache-2.0
 *
 * A session: the tokens of a context and what attention keeps of them (kvcache.h) in a file, so
 * that the next prompt that begins like them computes only what is new.
 *
 *	kv_session_open(path, file, &options, &s, why);  locks; refuses what is no session of this model
 *	engine_open(...);
 *	kv_session_restore(s, e, prompt, n, why);        the context is what prompt and file share
 *	engine_feed(e, prompt + engine_position(e), ...) and so on; between the feeds
 *	kv_session_save(s, false, why);                  appends what the file lacks
 *	kv_session_close(s);
 *
 * The results are bit for bit those of a run that begins a session: with one, a row depends on the
 * tokens up to its own, on the model and on how numbers are rounded, and on nothing else (engine.h:
 * a run without computes long prompts of some models in another order). Model and options
 * are in the file's head. That the rest is the same, too (expert files, processor, version of the
 * engine), is proved: the last token that prompt and file share is always computed anew, and its row
 * must be the one in the file. It is needed anyway where it is the prompt's last token.
 *
 * The file, all numbers little-endian:
 *
 *	head, 64 bytes
 *	  0  "COLIKV1\n"
 *	  8  u32 kv type: 0 f32, 1 bf16        12  u32 bits of activations: 8, 32
 *	 16  u32 layers of a row               20  u32 0
 *	 24  u64 bytes of a row                32  u64 XXH3 of model.json
 *	 40  16 bytes of 0                     56  u64 XXH3 of the 56 bytes before
 *	blocks, one behind the other
 *	  0  u64 XXH3 of the rest of the block, seeded with the one before it (of the head for the
 *	     first)
 *	  8  u32 first                         12  u32 count, at least 1
 *	 16  u32 first tie (engine.h); 2^31 - 1 if there is none
 *	 20  u32 0
 *	 24  u64 bytes behind this: count * (4 + bytes of a row), in one block no more than
 *	     SESSION_BLOCK, or one row
 *	 32  i32 [count] token ids; then the rows of the tokens first .. first + count - 1: layer after
 *	     layer [count] rows, then [count] index keys if the layer has them
 *
 * A block says what the context is from token `first` on, first being at most the number of tokens
 * so far: a smaller one takes back the tokens behind it. So no block is ever changed. The file is
 * appended to, a block in one write; where the context leaves it, it is cut first, at the end of the
 * first block that leads to all tokens that both share. So these are in the file at every moment, and
 * what is cut off would be taken back anyway. What that block has more stays, and holds no more: less
 * than a block for each place where a context left the file, if none has left it earlier since.
 *
 * The file is good up to the first block whose checksum or numbers do not hold: what is behind (a
 * write that a crash cut off, or damage) is left out, and cut off before the next block is appended.
 * A file of no bytes, or with the beginning of a head only, is an empty session.
 *
 * One process at a time: the file is locked (flock) until kv_session_close(). Not for threads.
 */
#ifndef ENGINE_SESSION_H
#define ENGINE_SESSION_H

#include "engine/engine.h"

#define SESSION_BLOCK ((size_t)4 << 20)

/* Bytes of memory that a session takes beside the engine's, for rows of this many. */
size_t kv_session_bytes(size_t row_bytes, int ctx);

struct kv_session;

/* Makes the file (mode 0600) if there is none. o: the options that the engine will have. -EBUSY if
 * another process has it, -EINVAL if it is no session, or one of another model or other options; it
 * is not changed then. */
int kv_session_open(const char *path, const struct modelfile *file, const struct engine_options *o,
		    struct kv_session **out, char *why);
void kv_session_close(struct kv_session *s); /* NULL is fine */

/* Reads the file into e, whose context is afterwards what the prompt and the session share, but for
 * the last token of it. n <= engine_ctx(e). e must outlive the session. Once a session. */
int kv_session_restore(struct kv_session *s, struct engine *e, const int32_t *prompt, int n,
		       char *why);

/* Bytes at the end of the file that were damaged or not written whole, and are left out. */
uint64_t kv_session_torn(const struct kv_session *s);

/* Appends what the context has and the file lacks; since kv_session_restore() it may only have grown.
 * sync: it is on the drive afterwards. An error leaves the file as good as it was, but for what the
 * context has taken back. -ESTALE if the context is not what the file was computed with (see above);
 * nothing is ever written then. */
int kv_session_save(struct kv_session *s, bool sync, char *why);

#endif
