#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The mount as any program sees it: the right bytes in each serving mode, with each kind of I/O, at any
# memory; and the promises about what a reader holds. Needs no model: make_store writes random experts.
. "$(dirname "$0")/../lib.sh"
need_root
need_fuse

MNT=$WORK/mnt
PATH=$BUILD/tests:$PATH

# same MNT PLAIN: every expert equal, twice, so that hits are read, too.
same()
{
	diff -r "$1/experts" "$2/experts"
	diff -r "$1/experts" "$2/experts"
}

section 'the same bytes in each mode, with each I/O, at each memory'
make_store "$WORK/s" 3 8 300001 2 2 2
for mode in passthrough direct; do
	for io in uring threads; do
		for memory in 0 5M 64M; do
			mount_store "$WORK/s" "$MNT" --no-warm --mode $mode --io $io --memory $memory
			same "$MNT" "$WORK/s.plain"
			[ "$(stat_of "$MNT" mode)" = $mode ] || die "mode is not $mode"
			case $io in
			uring) want=io_uring ;;
			*) want=threads ;;
			esac
			[ "$(stat_of "$MNT" io)" = $want ] || die "io is not $want"
			[ "$(stat_of "$MNT" opens)" = 48 ] || die 'not every open was counted'
			resident=$(stat_of "$MNT" experts.resident)
			case $memory in
			0) [ "$resident" = 0 ] && [ "$(stat_of "$MNT" hits)" = 0 ] ;;
			# A layer has more experts than fit; read one after the other, each still finds room.
			5M) [ "$resident" -gt 0 ] && [ "$resident" -lt 24 ] && [ "$(stat_of "$MNT" unkept)" = 0 ] ;;
			64M) [ "$resident" = 24 ] && [ "$(stat_of "$MNT" hits)" = 24 ] ;;
			esac || die "--memory $memory: $resident experts resident"
			unmount "$MNT"
		done
	done
done

section 'names and attributes'
mount_store "$WORK/s" "$MNT" --no-warm --memory 64M
[ "$(ls "$MNT/experts")" = $'000\n001\n002' ] || die 'wrong layers'
[ "$(ls "$MNT/experts/001" | wc -l)" = 8 ] || die 'wrong experts'
[ "$(stat -c '%s %a %F' "$MNT/experts/001/007")" = '300001 444 regular file' ] || die 'wrong attributes'
[ "$(stat -f -c %T "$MNT")" = fuseblk ] || [ "$(stat -f -c %T "$MNT")" = fuse ] || die 'not FUSE'
cmp "$MNT/model.json" "$WORK/s/model.json"
cmp "$MNT/dense.bin" "$WORK/s/dense.bin"
for missing in 3 0001 008 x ../x; do
	[ ! -e "$MNT/experts/001/$missing" ] || die "$missing exists"
done
[ ! -e "$MNT/experts/003" ] || die 'layer 3 exists'
expect_fail 1 'Read-only file system' touch "$MNT/new"
expect_fail 1 'Read-only file system' dd if=/dev/null of="$MNT/experts/000/000" status=none
expect_fail 1 'Read-only file system' rm -f "$MNT/model.json"
head -c 200000 "$MNT/experts/002/003" | cmp -n 200000 - "$WORK/s.plain/experts/002/003"
dd if="$MNT/experts/002/003" bs=1 skip=299999 status=none | cmp - <(tail -c 2 "$WORK/s.plain/experts/002/003")
cp -r "$MNT" "$WORK/copy"
diff -r "$WORK/copy/experts" "$WORK/s.plain/experts"
expect_fail 1 'mounted already' expertfs "$WORK/s" "$MNT"
unmount "$MNT"

section 'what a reader holds stays, and memory stays inside the budget'
# 24 experts of 300 KB, room for about three: all opened at once and mapped, then read again after others
# have been through the store.
cat >"$WORK/hold.py" <<'EOF'
import ctypes, hashlib, json, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
mnt, plain, mode = sys.argv[1:]
names = ["%03d/%03d" % (l, e) for l in range(3) for e in range(8)]
want = {n: hashlib.sha256(open(plain + "/experts/" + n, "rb").read()).digest() for n in names}
def bytes_of(f):
    return os.pread(f.fileno(), 1 << 20, 0)
held = [open(mnt + "/experts/" + n, "rb") for n in names]
maps = []
for n, f in zip(names, held):
    assert hashlib.sha256(bytes_of(f)).digest() == want[n], n
    # Python's own mmap would keep a descriptor open. PROT_READ, MAP_SHARED:
    at = libc.mmap(None, 300001, 1, 1, f.fileno(), 0)
    if at != ctypes.c_void_p(-1).value:  # an expert that found no room cannot be mapped, only read
        maps.append((n, (ctypes.c_char * 300001).from_address(at)))
memory = json.load(open(mnt + "/.expertfs/stats.json"))["memory"]
assert memory["used"] <= memory["budget"], memory
assert mode == "direct" or 0 < len(maps) < 24, len(maps)
if mode == "direct":  # here a mapping keeps the handle: RELEASE comes with munmap
    for n, m in maps:
        assert hashlib.sha256(bytes(m)).digest() == want[n], n
        libc.munmap(ctypes.c_void_p(ctypes.addressof(m)), 300001)
    maps = []
for f in held:
    f.close()
for _ in range(2):
    for n in names:
        assert hashlib.sha256(open(mnt + "/experts/" + n, "rb").read()).digest() == want[n], n
for n, m in maps:
    assert hashlib.sha256(bytes(m)).digest() == want[n], n
EOF
for mode in passthrough direct; do
	mount_store "$WORK/s" "$MNT" --no-warm --mode $mode --memory 5M
	python3 "$WORK/hold.py" "$MNT" "$WORK/s.plain" $mode
	# What was mapped to the end could not go before.
	same "$MNT" "$WORK/s.plain"
	[ "$(stat_of "$MNT" evictions)" -gt 0 ] || die 'nothing was evicted'
	[ "$(stat_of "$MNT" recycled)" -gt 0 ] || die 'no memory was used again'
	unmount "$MNT"
done

section 'many readers at once, room for few'
for mode in passthrough direct; do
	mount_store "$WORK/s" "$MNT" --no-warm --mode $mode --memory 5M
	for i in $(seq 400); do
		printf '%03d/%03d\n' $((RANDOM % 3)) $((RANDOM % 8))
	done | xargs -P 12 -I{} cmp "$MNT/experts/{}" "$WORK/s.plain/experts/{}"
	[ "$(stat_of "$MNT" opens)" = 400 ] || die 'opens were lost'
	sleep 0.2 # RELEASE comes after close() has returned
	[ "$(stat_of "$MNT" experts.held)" = 0 ] || die 'a handle leaked'
	unmount "$MNT"
done

section 'large experts lie in huge pages where these are to be had; the budget is told term by term'
make_store "$WORK/big" 1 6 5000000
mount_store "$WORK/big" "$MNT" --memory 30M
grep -Eq 'memory 30\.0 MiB: hot store [0-9.]+ MiB \([1-5] of 6 experts, in huge pages\), tables [0-9.]+ KiB, threads .*, buffers .*, usage .*, moving [0-9.]+ MiB$' "$DAEMON_LOG" ||
	die 'the terms of the budget are not in the log'
same "$MNT" "$WORK/big.plain"
[ "$(stat_of "$MNT" memory.huge_pages)" = true ] || die 'no huge pages'
[ "$(stat_of "$MNT" experts.resident)" -gt 0 ] || die 'nothing resident'
unmount "$MNT"

section 'who asks for an expert that is on its way waits for the same read, which goes past the page cache'
for mode in passthrough direct; do
	rm -f "$WORK"/big/catalog.db-*
	dd of="$WORK/big/test.shard" oflag=nocache conv=notrunc,fdatasync count=0 status=none
	mount_store "$WORK/big" "$MNT" --no-warm --mode $mode --memory 64M
	for _ in 1 2 3 4 5 6 7 8; do
		cmp "$MNT/experts/000/002" "$WORK/big.plain/experts/000/002" &
	done
	for _ in 1 2 3 4 5 6 7 8; do wait -n || die 'a reader saw something else'; done
	[ "$(stat_of "$MNT" opens)" = 8 ] || die 'not every open was counted'
	[ "$(stat_of "$MNT" bytes_read)" = 5001216 ] || die "$(stat_of "$MNT" bytes_read) bytes were read for one expert"
	cat "$MNT"/experts/000/* >"$WORK/out"
	# All but what the start looks at, with the kernel's reading ahead.
	if command -v fincore >/dev/null && [ "$(stat -f -c %T "$WORK")" != tmpfs ]; then
		pages=$(fincore -n -o PAGES "$WORK/big/test.shard")
		[ "$pages" -le 256 ] || die "$pages of 7,327 pages are in the page cache"
	fi
	unmount "$MNT"
done

section 'the policy is switched and tuned under what is resident'
mount_store "$WORK/s" "$MNT" --no-warm --memory 64M
for e in 000 001 002 003; do cat "$MNT/experts/000/$e" >/dev/null; done
for policy in 'lru' 'lfru weight=0.3 half_life=16' 'lfru weight=0.7' 's3fifo' 'quota:lru' 'expert'; do
	# shellcheck disable=SC2086
	expertctl policy "$MNT" $policy
	spec=${policy/ /:}
	[ "$(expertctl policy "$MNT")" = "${spec// /,}" ] || die "the policy is not $policy"
	[ "$(stat_of "$MNT" policy)" = "${spec// /,}" ] || die 'stats.json says another policy'
	[ "$(stat_of "$MNT" experts.resident)" = 4 ] || die 'an expert was lost'
done
echo lru >"$MNT/.expertfs/policy"
[ "$(cat "$MNT/.expertfs/policy")" = lru ] || die 'the file does not take a line from a shell'
expect_fail 1 'knows no policy "best"' expertctl policy "$MNT" best
expect_fail 1 'knows no policy "lfru:weight=7"' expertctl policy "$MNT" lfru weight=7
expect_fail 1 'no store is mounted' expertctl policy "$WORK/s" lru
same "$MNT" "$WORK/s.plain"
for change in "mkdir $MNT/x" "rmdir $MNT/experts/000" "mv $MNT/model.json $MNT/y" "ln -s a $MNT/z" \
	"ln $MNT/model.json $MNT/w" "mknod $MNT/p p" "chmod 600 $MNT/model.json" "truncate -s 0 $MNT/model.json"; do
	# shellcheck disable=SC2086
	expect_fail 1 'Read-only file system' $change
done
unmount "$MNT"

section 'without root: fusermount3, direct mode'
# In a mount namespace of its own: with a /dev/fuse that is open to all users, as udev makes it but not
# every virtual machine has it, and with everything on a file system that the user can reach.
cat >"$WORK/as_user.sh" <<'EOF'
set -eu
status=0
/mnt/expertfs --mode passthrough /mnt/s /mnt/user 2>/mnt/user.err || status=$?
[ $status = 1 ] && [ "$(wc -l </mnt/user.err)" = 1 ]
grep -q 'passthrough is not to be had here' /mnt/user.err
/mnt/expertfs --memory 64M /mnt/s /mnt/user
trap 'fusermount3 -u /mnt/user' EXIT
diff -r /mnt/user/experts /mnt/s.plain/experts
grep '"mode"' /mnt/user/.expertfs/stats.json
EOF
cat >"$WORK/namespace.sh" <<'EOF'
set -eu
mount -t tmpfs -o mode=755 tmpfs /mnt
mknod -m 666 /mnt/fuse c 10 229
mount --bind /mnt/fuse /dev/fuse
make_store /mnt/s 2 4 300001
cp "$BUILD/expertfs" "$WORK/as_user.sh" /mnt/
mkdir /mnt/user
: >/mnt/user.err
chmod 755 /mnt/expertfs
chmod 666 /mnt/user.err
chown nobody /mnt/user
cd /mnt
exec setpriv --reuid nobody --regid nogroup --clear-groups bash /mnt/as_user.sh
EOF
said=$(unshare --mount bash "$WORK/namespace.sh")
[ "$said" = ' "mode": "direct",' ] || die "a user's mount says $said"
