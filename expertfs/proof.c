/* SPDX-License-Identifier: Apache-2.0
 *
 * Proving what lies on a drive; see proof.h.
 */
#include "expertfs/proof.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "expertfs/disk.h"
#include "expertfs/shard.h"
#include "expertfs/xxh3.h"

int proof_open(const char *path)
{
	bool direct; /* where it is not, the page cache is given back */

	return direct_open(path, O_RDONLY, &direct);
}

/* Some file systems take O_DIRECT at open and refuse the read. */
static ssize_t read_some(int fd, void *buf, uint64_t n, uint64_t offset)
{
	ssize_t got = pread(fd, buf, n, (off_t)offset);
	int flags;

	if (got >= 0 || errno != EINVAL)
		return got;
	flags = fcntl(fd, F_GETFL);
	if (flags < 0 || !(flags & O_DIRECT) || fcntl(fd, F_SETFL, flags & ~O_DIRECT) != 0) {
		errno = EINVAL;
		return -1;
	}
	return pread(fd, buf, n, (off_t)offset);
}

/* n bytes, of which the first `wanted` must come: the rest is the padding of the last block. */
static int read_full(int fd, char *buf, uint64_t n, uint64_t wanted, uint64_t offset)
{
	uint64_t at = 0;

	while (at < wanted) {
		ssize_t got = read_some(fd, buf + at, n - at, offset + at);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (got == 0)
			return -ENODATA;
		at += (uint64_t)got;
	}
	return 0;
}

static int hash_range(int fd, uint64_t offset, uint64_t length, void *buf, XXH3_state_t *hash,
		      proof_tick *tick, void *arg)
{
	int err = 0;

	for (uint64_t at = 0; at < length && !err;) {
		uint64_t left = length - at, n = left < PROOF_BYTES ? left : PROOF_BYTES;
		err = read_full(fd, buf, shard_round_up(n), n, offset + at);
		if (err)
			break;
		XXH3_64bits_update(hash, buf, n);
		if (tick && !tick(arg, n))
			err = -ECANCELED;
		at += n;
	}
	/* Where the page cache was in the way, it is given back. */
	posix_fadvise(fd, (off_t)offset, (off_t)shard_round_up(length), POSIX_FADV_DONTNEED);
	return err;
}

int proof_range(int fd, uint64_t offset, uint64_t length, uint64_t check, void *buf,
		proof_tick *tick, void *arg)
{
	XXH3_state_t *hash = XXH3_createState();
	int err;

	if (!hash)
		return -ENOMEM;
	XXH3_64bits_reset(hash);
	err = hash_range(fd, offset, length, buf, hash, tick, arg);
	if (!err && XXH3_64bits_digest(hash) != check)
		err = -EBADMSG;
	XXH3_freeState(hash);
	return err;
}

const char *proof_text(int err)
{
	switch (-err) {
	case EBADMSG:
		return "its checksum is wrong";
	case ENODATA:
		return "the file ends before it does";
	default:
		return strerror(-err);
	}
}
