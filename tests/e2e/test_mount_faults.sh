#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Faults of the daemon's world: damaged and missing files, a killed daemon, readers in the middle of a read when it
# ends, wrong options. Each gives one sentence or a clean error, never wrong bytes and never a hang.
. "$(dirname "$0")/../lib.sh"
need_root
need_fuse

MNT=$WORK/mnt
PATH=$BUILD/tests:$PATH
mkdir "$MNT"
make_store "$WORK/s" 2 4 300001 2 1 1

flip()
{
	printf '\xff' | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
	printf '\x01' | dd of="$1" bs=1 seek=$(($2 + 1)) conv=notrunc status=none
}

section 'a store that cannot be mounted says which file, and what is wrong with it'
expect_fail 1 'No such file' expertfs "$WORK/none" "$MNT"
expect_fail 1 'is not a store: model.json' expertfs "$WORK" "$MNT"
cp -r "$WORK/s" "$WORK/t"
mv "$WORK/s.drive1" "$WORK/s.away"
expect_fail 1 "$WORK/s.drive1/test.shard: the shard of drive 1 is missing" expertfs "$WORK/s" "$MNT"
mv "$WORK/s.away" "$WORK/s.drive1"
truncate -s -4096 "$WORK/t/test.shard"
expect_fail 1 "$WORK/t/test.shard is damaged: it has [0-9]+ bytes and should have" expertfs "$WORK/t" "$MNT"
cp "$WORK/s/test.shard" "$WORK/t/test.shard"
flip "$WORK/t/test.shard" 20
expect_fail 1 'its first block is not that of a shard' expertfs "$WORK/t" "$MNT"
make_store "$WORK/other" 2 4 300001 2 1 1
cp "$WORK/s.drive1/test.shard" "$WORK/t/test.shard"
expect_fail 1 '(belongs to another|should have)' expertfs "$WORK/t" "$MNT"
cp "$WORK/s/test.shard" "$WORK/t/test.shard"
rm "$WORK/t/dense.bin"
expect_fail 1 'dense.bin: No such file' expertfs "$WORK/t" "$MNT"
! mountpoint -q "$MNT" || die 'something was mounted'

section 'options'
expect_fail 2 'unknown option --what' expertfs --what "$WORK/s" "$MNT"
expect_fail 2 'unknown option -x;' expertfs -xf "$WORK/s" "$MNT"
expect_fail 2 'not a size' expertfs --memory 12Q "$WORK/s" "$MNT"
expect_fail 2 'one of auto, passthrough, direct' expertfs --mode fast "$WORK/s" "$MNT"
expect_fail 1 'no such policy' expertfs --policy best "$WORK/s" "$MNT"
expect_fail 2 'unknown option' expertfs -o speed=9 "$WORK/s" "$MNT"
expect_fail 2 '^expertfs: --state needs a value' expertfs --state '' "$WORK/s" "$MNT"
expect_fail 1 '[-]-state is for a GGUF file' expertfs --state "$WORK" "$WORK/s" "$MNT"
expect_fail 2 'usage' expertfs "$WORK/s"
expect_fail 1 'would hide the store' expertfs "$WORK/s" "$WORK"
expect_fail 1 'would hide .*s.drive1/test.shard' expertfs "$WORK/s" "$WORK/s.drive1"
mkdir "$MNT/hot" # it would be asked for of a mount that does not answer yet
for hot in "$MNT" "$MNT/hot"; do
	expect_fail 1 "would hide --hot-dir $hot" expertfs --hot-dir "$hot" --hot-dir-size 4M "$WORK/s" "$MNT"
done
rmdir "$MNT/hot"
expect_fail 1 'is not a folder' expertfs "$WORK/s" "$WORK/s/model.json"
expertfs --help | grep -q 'usage: expertfs' || die 'no help'
mount_store -o memory=64M,mode=direct,nosuid "$WORK/s" "$MNT"
[ "$(stat_of "$MNT" mode)" = direct ] || die '-o mode= was not taken'
[ "$(stat_of "$MNT" memory.budget)" = $((64 << 20)) ] || die '-o memory= was not taken'
unmount "$MNT"

section 'a flipped byte: this expert gives EIO, the others are right, and it is counted'
for memory in 0 64M; do
	for mode in passthrough direct; do
		rm -rf "$WORK/t" && cp -r "$WORK/s" "$WORK/t"
		flip "$WORK/t/test.shard" 150000 # in the first record's payload: expert 0/0
		mount_store "$WORK/t" "$MNT" --mode $mode --memory $memory
		expect_fail 1 'Input/output error' cat "$MNT/experts/000/000"
		expect_fail 1 'Input/output error' cat "$MNT/experts/000/000"
		for e in 001/000 000/001 000/002 001/003; do
			cmp "$MNT/experts/$e" "$WORK/s.plain/experts/$e"
		done
		[ "$(stat_of "$MNT" errors)" = 2 ] || die 'errors were not counted'
		[ "$(stat_of "$MNT" experts.loading)" = 0 ] || die 'a load hangs'
		[ "$(stat_of "$MNT" evictions)" = 0 ] || die 'what never came counts as evicted'
		unmount "$MNT"
	done
done

section 'the same with a replica: the good copy is served'
make_store "$WORK/r" 1 2 300001 2 2 2
for memory in 0 64M; do
	flip "$WORK/r/test.shard" 20000
	mount_store "$WORK/r" "$MNT" --memory $memory
	diff -r "$MNT/experts" "$WORK/r.plain/experts"
	[ "$(stat_of "$MNT" errors)" = 0 ] || die 'an open failed'
	unmount "$MNT"
done

section 'a shard that is cut short while it is mounted'
rm -rf "$WORK/t" && cp -r "$WORK/s" "$WORK/t"
mount_store "$WORK/t" "$MNT" --memory 64M
truncate -s 8192 "$WORK/t/test.shard"
expect_fail 1 'Input/output error' cat "$MNT/experts/000/000"
cmp "$MNT/experts/000/001" "$WORK/s.plain/experts/000/001"
unmount "$MNT"

section 'a limit on the size of files: what cannot be kept for it is served all the same'
(
	ulimit -f 200
	mount_store "$WORK/s" "$MNT" --memory 64M
)
diff -r "$MNT/experts" "$WORK/s.plain/experts"
[ "$(stat_of "$MNT" errors)" = 0 ] || die 'an open failed'
[ "$(stat_of "$MNT" experts.resident)" = 0 ] || die 'the limit does not hold'
unmount "$MNT"

section 'SIGKILL: open files live on, the dead mount is recognised'
mount_store "$WORK/s" "$MNT" --memory 64M
exec 9<"$MNT/experts/001/002"
kill -KILL "$(daemon_pid "$MNT")"
sleep 0.2
cmp - "$WORK/s.plain/experts/001/002" <&9
exec 9<&-
expect_fail 1 'Transport endpoint is not connected' cat "$MNT/experts/000/000"
expect_fail 1 'dead mount of a daemon that was killed' expertfs "$WORK/s" "$MNT"
umount "$MNT"

section 'SIGTERM and SIGINT: no mount and no process is left, also with a reader in the middle'
make_store "$WORK/big" 1 4 30000000
for signal in TERM INT; do
	for mode in passthrough direct; do
		mount_store "$WORK/big" "$MNT" --mode $mode --memory 100M
		pid=$(daemon_pid "$MNT")
		# Reads slowly, and is in the middle when the signal comes.
		dd if="$MNT/experts/000/000" bs=1M 2>/dev/null | (sleep 1; cat) >"$WORK/out" &
		exec 9<"$MNT/experts/000/001"
		sleep 0.3
		kill -$signal "$pid"
		sleep 0.3
		! mountpoint -q "$MNT" || die "still mounted after SIG$signal"
		wait %% || true
		cmp "$WORK/out" "$WORK/big.plain/experts/000/000"
		for _ in $(seq 60); do
			[ -e "/proc/$pid" ] || break
			sleep 0.1
		done
		[ ! -e "/proc/$pid" ] || die "the daemon did not end after SIG$signal"
		exec 9<&-
	done
done

section 'in the foreground: the log on stderr, Ctrl-C ends it'
expertfs -f --memory 64M "$WORK/s" "$MNT" 2>"$WORK/log" &
for _ in $(seq 50); do
	grep -q 'mode ' "$WORK/log" && break
	sleep 0.1
done
mountpoint -q "$MNT" || die 'not mounted'
grep -q 'mode passthrough, policy expert, 8 experts on 2 drives' "$WORK/log" || die 'the mode is not in the log'
kill -INT %%
wait %% || die "ended with $?"
grep -q 'unmounted' "$WORK/log" || die 'the end is not in the log'

section 'a lazy unmount with a file open: the daemon ends when it is closed'
mount_store "$WORK/s" "$MNT" --mode direct --memory 64M
pid=$(daemon_pid "$MNT")
exec 9<"$MNT/experts/001/001"
umount -l "$MNT"
cmp - "$WORK/s.plain/experts/001/001" <&9
exec 9<&-
for _ in $(seq 60); do
	[ -e "/proc/$pid" ] || break
	sleep 0.1
done
[ ! -e "/proc/$pid" ] || die 'the daemon did not end'

section "SIGTERM after a lazy unmount leaves alone who is mounted there since"
mkdir -p "$WORK/a mount"
mount_store "$WORK/s" "$WORK/a mount" --memory 64M
pid=$(daemon_pid "$WORK/a mount")
expect_fail 1 'a mount is mounted already: umount' expertfs "$WORK/s" "$WORK/a mount"
exec 9<"$WORK/a mount/experts/001/001"
umount -l "$WORK/a mount"
mount_store "$WORK/r" "$WORK/a mount" --memory 64M
kill -TERM "$pid"
for _ in $(seq 100); do
	[ -e "/proc/$pid" ] || break
	sleep 0.1
done
[ ! -e "/proc/$pid" ] || die 'the daemon did not end'
exec 9<&-
diff -r "$WORK/a mount/experts" "$WORK/r.plain/experts"
unmount "$WORK/a mount"

section 'more memory than the cgroup has' # and than the machine has: test_big_store.sh
[ -w /sys/fs/cgroup/memory/cgroup.procs ] || skip 'all but the last passed; that needs a cgroup v1 memory controller to write to'
expect_fail 1 'does not fit: .* is available, .* is missing' bash -c "
	g=/sys/fs/cgroup/memory/expertfs-test-\$\$
	mkdir \$g
	trap 'echo \$\$ >/sys/fs/cgroup/memory/cgroup.procs; rmdir \$g' EXIT
	echo 30M >\$g/memory.limit_in_bytes
	echo \$\$ >\$g/cgroup.procs
	expertfs --memory 1G '$WORK/big' '$MNT'"
