#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The hot store as people and engines steer it: pins, loads ahead, evictions; what a reader has mapped
# stays; memory that is ready and used again; the store gives way under memory pressure.
. "$(dirname "$0")/../lib.sh"
need_root
need_fuse

MNT=$WORK/mnt
PATH=$BUILD/tests:$PATH
C=$MNT/.expertfs

# wait_for KEY VALUE: a figure of stats.json comes to be so within 5 s.
wait_for()
{
	local i
	for ((i = 0; i < 100; i++)); do
		[ "$(stat_of "$MNT" "$1")" != "$2" ] || return 0
		sleep 0.05
	done
	die "$1 is $(stat_of "$MNT" "$1"), not $2"
}

state_of()
{
	python3 -c 'import os, sys; print(os.getxattr(sys.argv[1], "user.expertfs.state").decode())' \
		"$MNT/experts/$1"
}

section 'pin, unpin, warm, evict'
make_store "$WORK/s" 3 8 300001
mount_store "$WORK/s" "$MNT" --no-warm --memory 64M
expertctl warm "$MNT" 0/0-3 1/all
wait_for experts.resident 12
[ "$(stat_of "$MNT" opens)" = 0 ] || die 'a load ahead counts as an open'
expertctl pin "$MNT" 002/007 1/0
wait_for experts.resident 13
[ "$(expertctl pin "$MNT")" = $'1/0\n2/7' ] || die "pinned: $(expertctl pin "$MNT")"
[ "$(stat_of "$MNT" experts.pinned)" = 2 ] || die 'the pins are not counted'
expect_fail 1 'expert 2/7 cannot be evicted: .*pinned' expertctl evict "$MNT" 2/7
expertctl evict "$MNT" 0/all
wait_for experts.resident 9
expertctl unpin "$MNT" 2/7
expertctl evict "$MNT" 2/7
[ "$(state_of 002/007)" = cold ] || die 'evicted, and still there'
expect_fail 1 'expert 2/7 cannot be unpinned: it is not' expertctl unpin "$MNT" 2/7
expect_fail 1 'the store has no expert 9/1' expertctl pin "$MNT" 9/1
expect_fail 1 '"3-1/2" names no expert' expertctl warm "$MNT" 3-1/2
expect_fail 1 '"0/4294967296" names no expert' expertctl warm "$MNT" 0/4294967296
expect_fail 1 'Invalid argument' bash -c "printf '0/7\0\n' >'$C/warm'"
[ "$(state_of 000/007)" = cold ] || die 'half of a text was obeyed'
expect_fail 2 'which experts' expertctl warm "$MNT"
for e in 000 001 002; do cat "$MNT/experts/002/$e" "$MNT/experts/002/$e" >/dev/null; done
cat "$MNT/experts/002/001" >/dev/null
expertctl pin "$MNT" top 650K
[ "$(expertctl pin "$MNT")" = $'1/0\n2/1\n2/2' ] || die "the hottest are $(expertctl pin "$MNT")"
expect_fail 1 'expert 0/0 cannot be unpinned: it is not' expertctl unpin "$MNT" all
[ -z "$(expertctl pin "$MNT")" ] || die "one that is not pinned kept others: $(expertctl pin "$MNT")"
exec 9<"$MNT/experts/000/001"
expect_fail 1 'expert 0/1 cannot be evicted: a reader' expertctl evict "$MNT" all
[ "$(stat_of "$MNT" experts.resident)" = 1 ] || die 'one that is held kept others in memory'
exec 9<&-
echo '0/5' >"$C/warm"
printf '0/6\n0/7' >"$C/warm"
sleep 0.3
[ "$(state_of 000/007)" = resident ] || die 'lines from a shell are not obeyed'

section 'a line that a full buffer has cut: half a name is another expert'
python3 - "$C/pin" <<'END'
import os, sys
# Written in pieces of 4096 bytes, as by stdio: the first one ends with " 0/0".
text = b"0/3\n" * 1023 + b" 0/07\n"
fd = os.open(sys.argv[1], os.O_RDWR)
assert os.write(fd, text[:4096]) == 4096 and os.write(fd, text[4096:]) == 2
os.close(fd)
fd = os.open(sys.argv[1], os.O_WRONLY)  # and here the end never comes
assert os.write(fd, b"0/3\n" * 255 + b" 2/1") == 1024
os.close(fd)
END
sleep 0.2 # RELEASE comes after close() has returned
[ "$(expertctl pin "$MNT")" = $'0/3\n0/7\n2/1' ] || die "pinned: $(expertctl pin "$MNT")"
expertctl unpin "$MNT" 0/3 0/7 2/1

section 'used without an open'
hits=$(stat_of "$MNT" hits) opens=$(stat_of "$MNT" opens)
printf '0/5 0/6\n0/5\n' >"$C/used"
[ "$(stat_of "$MNT" hits) $(stat_of "$MNT" opens)" = "$((hits + 3)) $((opens + 3))" ] || die 'uses do not count as opens'
[ "$(awk -F , '$1 == 0 && $2 == 5 { print $4 }' "$C/usage")" = 2 ] || die 'a use is not counted with its expert'
expertctl evict "$MNT" 0/6
expect_fail 1 'No such device or address' bash -c "echo 0/6 >'$C/used'"
[ "$(stat_of "$MNT" opens)" = $((opens + 3)) ] || die 'a use of what is not in memory was counted'
unmount "$MNT"

section 'a pin comes, whatever the layer that ran last has left'
mount_store "$WORK/s" "$MNT" --no-warm --memory 3500K
slots=$(stat_of "$MNT" memory.slots)
[ "$slots" -gt 1 ] && [ "$slots" -lt 8 ] || die "there is room for $slots"
for ((e = 0; e < slots; e++)); do cat "$MNT/experts/000/00$e" >/dev/null; done
wait_for experts.held 0
expertctl pin "$MNT" 2/5
for ((i = 0; i < 100; i++)); do
	[ "$(state_of 002/005)" != resident ] || break
	sleep 0.05
done
[ "$(state_of 002/005)" = resident ] || die 'what is pinned did not come'
for _ in 1 2; do cat "$MNT"/experts/*/* >/dev/null; done
[ "$(state_of 002/005)" = resident ] || die 'what is pinned went'
unmount "$MNT"

section 'pins leave room to work'
mount_store "$WORK/s" "$MNT" --no-warm --memory 7M
expect_fail 1 'cannot be pinned: there is no room' expertctl pin "$MNT" all
pinned=$(stat_of "$MNT" experts.pinned)
[ "$pinned" -gt 4 ] && [ "$pinned" -lt 24 ] || die "$pinned pinned"
diff -r "$MNT/experts" "$WORK/s.plain/experts"
[ "$(stat_of "$MNT" unkept)" = 0 ] || die 'no room was left'
[ "$(stat_of "$MNT" memory.used)" -le "$(stat_of "$MNT" memory.budget)" ] || die 'too much memory'
unmount "$MNT"

section 'what the policy would rather not keep'
make_store "$WORK/wide" 8 8 300001
mount_store "$WORK/wide" "$MNT" --no-warm --memory 5M --policy expert:decline=1
slots=$(stat_of "$MNT" memory.slots)
[ "$slots" -ge 2 ] && [ "$slots" -lt 56 ] || die "room for $slots experts"
# As many as fit are asked for again and again, a share in each layer; then one more, once.
for ((round = 0; round < 25; round++)); do
	for layer in 0 1 2 3 4 5 6 7; do
		for ((e = 0; e * 8 + layer < slots; e++)); do cat "$MNT/experts/00$layer/00$e" >/dev/null; done
	done
done
[ "$(stat_of "$MNT" misses)" = "$slots" ] || die 'those that fit were read more than once'
cat "$MNT/experts/007/007" >/dev/null
[ "$(stat_of "$MNT" unkept) $(stat_of "$MNT" evictions)" = '1 0' ] || die 'it was kept for one that is worth more'
expertctl policy "$MNT" expert
cat "$MNT/experts/007/007" >/dev/null
[ "$(stat_of "$MNT" unkept) $(stat_of "$MNT" evictions)" = '1 1' ] || die 'it was not kept'
unmount "$MNT"

section 'who may write'
mount_store -o allow_other "$WORK/s" "$MNT" --no-warm --memory 7M
# From inside: the folders above are closed to others.
cd "$C"
for f in policy pin unpin warm evict prefetch used drives trace; do
	setpriv --reuid nobody --regid nogroup --clear-groups test ! -w $f || die "all may write $f"
done
for f in stats.json metrics map top usage policy drives; do
	setpriv --reuid nobody --regid nogroup --clear-groups cat $f >/dev/null || die "$f is secret"
done
cd "$WORK"
expect_fail 1 'Read-only file system' dd if=/dev/zero of="$C/stats.json" bs=1 count=1 status=none
unmount "$MNT"
# The store's owner may, and what he orders is made with his rights, not with root's.
make_store --no-plain "$WORK/n" 1 4 20001
chown nobody "$WORK/n"
mkdir "$WORK/roots"
mount_store -o allow_other "$WORK/n" "$MNT" --no-warm --memory 7M
(
	cd "$C"
	setpriv --reuid nobody --regid nogroup --clear-groups bash -c "echo lru >policy; echo 'add equal $WORK/roots' >drives"
)
for ((i = 0; i < 100; i++)); do
	case $(json_get "$C/drives" tasks.0.state) in queued | running) sleep 0.05 ;; *) break ;; esac
done
[ "$(json_get "$C/drives" tasks.0.state)" = refused ] || die "the task is $(json_get "$C/drives" tasks.0.state)"
json_get "$C/drives" tasks.0.error | grep -q 'roots/test.shard: Permission denied' || die "$(json_get "$C/drives" tasks.0.error)"
[ -z "$(ls -A "$WORK/roots")" ] || die 'a file was made for somebody who may not'
unmount "$MNT"

section 'guesses'
mount_store "$WORK/s" "$MNT" --no-warm --memory 64M
echo 0/0-3 >"$C/prefetch"
wait_for prefetch.loaded 4
wait_for experts.resident 4
cat "$MNT/experts/000/000" "$MNT/experts/000/001" >/dev/null
[ "$(stat_of "$MNT" hits)" = 2 ] || die 'a guess that came is no hit'
expertctl evict "$MNT" 0/3
echo 0/0 >"$C/prefetch" # is there already
for key in asked=5 loaded=4 used=2 wasted=1; do
	[ "$(stat_of "$MNT" "prefetch.${key%=*}")" = "${key#*=}" ] ||
		die "prefetch.${key%=*} is $(stat_of "$MNT" "prefetch.${key%=*}")"
done
unmount "$MNT"

section 'what is mapped stays, and its bytes'
cat >"$WORK/mapped.py" <<'EOF'
import ctypes, os, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
mnt, plain = sys.argv[1:]
N = 300001
def state(name):
    return os.getxattr(mnt + "/experts/" + name, "user.expertfs.state").decode()
def evict(name):
    return subprocess.run(["expertctl", "evict", mnt, name], capture_output=True, text=True)
fd = os.open(mnt + "/experts/000/000", os.O_RDONLY)
at = libc.mmap(None, N, 1, 1, fd, 0)
os.close(fd)
for _ in range(3):
    for l in range(3):
        for e in range(8):
            if l or e:
                name = "%03d/%03d" % (l, e)
                assert open(mnt + "/experts/" + name, "rb").read() == open(plain + "/experts/" + name, "rb").read()
assert ctypes.string_at(at, N) == open(plain + "/experts/000/000", "rb").read()
assert state("000/000") == "resident"
said = evict("0/0")
assert said.returncode == 1 and "mapped" in said.stderr, said
libc.munmap(at, N)
assert evict("0/0").returncode == 0
assert state("000/000") == "cold"
EOF
mount_store "$WORK/s" "$MNT" --no-warm --memory 5M
python3 "$WORK/mapped.py" "$MNT" "$WORK/s.plain"
[ "$(stat_of "$MNT" evictions)" -gt 20 ] || die 'the others did not come and go'
[ "$(stat_of "$MNT" recycled)" -gt 20 ] || die 'memory was not used again'
[ "$(stat_of "$MNT" memory.evicted_but_mapped)" = 0 ] || die 'memory got lost'
unmount "$MNT"

section 'memory lies ready, in huge pages'
make_store "$WORK/big" 1 12 5000000
mount_store "$WORK/big" "$MNT" --no-warm --memory 64M
sleep 0.5
ready=$(stat_of "$MNT" memory.ready)
[ "$ready" -gt 0 ] || die 'none is ready'
for _ in 1 2 3; do
	diff -r "$MNT/experts" "$WORK/big.plain/experts"
	[ "$(stat_of "$MNT" memory.used)" -le "$(stat_of "$MNT" memory.budget)" ] || die 'too much memory'
done
[ "$(stat_of "$MNT" recycled)" -gt 12 ] || die 'it is not used'
unmount "$MNT"

section 'memory that is not to be had after all'
mount_store "$WORK/s" "$MNT" --no-warm --memory 64M
prlimit --pid "$(daemon_pid "$MNT")" --nofile=30:30 # no descriptor for another file
diff -r "$MNT/experts" "$WORK/s.plain/experts"
diff -r "$MNT/experts" "$WORK/s.plain/experts"
[ "$(stat_of "$MNT" unkept)" -gt 0 ] || die 'descriptors were left'
[ "$(stat_of "$MNT" errors)" = 0 ] || die 'an open failed'
unmount "$MNT"

section 'checksums: always, first, never'
for verify in always first never; do
	mount_store "$WORK/s" "$MNT" --no-warm --memory 0 --verify $verify
	diff -r "$MNT/experts" "$WORK/s.plain/experts"
	unmount "$MNT"
done
expect_fail 2 'verify.*always' expertfs --verify sometimes "$WORK/s" "$MNT"
expect_fail 2 'hot-dir-size' expertfs --hot-dir "$WORK" "$WORK/s" "$MNT"

section 'the store gives way to others' # and grows back: test_pressure.c
group=/sys/fs/cgroup/memory/expertfs-test-$$
# The memory of ThreadSanitizer itself is too much for the group.
if [ "${SANITIZE:-}" = thread ] || ! mkdir "$group" 2>/dev/null; then
	skip 'all but the last passed; that needs a cgroup v1 memory controller to write to'
fi
leave_group()
{
	local pid
	while read -r pid; do echo "$pid" >/sys/fs/cgroup/memory/cgroup.procs || true; done <"$group/cgroup.procs"
	rmdir "$group" || true
}
trap 'leave_group; lib_leave 1' EXIT
echo $((200 << 20)) >"$group/memory.limit_in_bytes"
make_store "$WORK/more" 2 12 5000000
# shellcheck disable=SC2016
sh -c 'echo $$ >"$1/cgroup.procs" && shift && exec "$@"' - "$group" \
	expertfs --no-warm --memory 140M "$WORK/more" "$MNT" 2>>"$DAEMON_LOG"
diff -r "$MNT/experts" "$WORK/more.plain/experts"
full=$(stat_of "$MNT" memory.hot_store)
# shellcheck disable=SC2016
sh -c 'echo $$ >"$1/cgroup.procs" && exec python3 -c "
import time
hold = []
for _ in range(17):
    hold.append(b\"x\" * (4 << 20))
    time.sleep(0.15)
time.sleep(3)"' - "$group" &
for ((i = 0; i < 80; i++)); do
	[ "$(stat_of "$MNT" memory.capacity)" -ge "$full" ] || break
	sleep 0.05
done
small=$(stat_of "$MNT" memory.capacity)
[ "$small" -lt "$full" ] || die "the hot store has kept its $full bytes"
diff -r "$MNT/experts" "$WORK/more.plain/experts"
wait $! || die 'the other process was killed for want of memory'
unmount "$MNT"
leave_group
trap 'lib_leave $?' EXIT
