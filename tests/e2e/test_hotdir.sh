#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# --hot-dir: what is loaded again and again is copied to the faster drive and read from there; it survives restarts,
# kills and damage.
. "$(dirname "$0")/../lib.sh"
need_root
need_fuse

MNT=$WORK/mnt
FAST=$WORK/fast
PATH=$BUILD/tests:$PATH
mkdir "$MNT" "$FAST"
mount -t tmpfs -o size=32m none "$FAST" || skip 'needs the right to mount a tmpfs'
make_store "$WORK/s" 2 20 300001 2

with_hot_dir()
{
	mount_store "$WORK/s" "$MNT" --hot-dir "$FAST" --hot-dir-size 4M "$@"
}

hot()
{
	json_get "$MNT/.expertfs/drives" "hot_dir.$1"
}

# Bytes that were read from the hot drive, which is the last one.
hot_reads()
{
	json_get "$MNT/.expertfs/drives" drives.2.bytes_read
}

all_right()
{
	diff -r "$MNT/experts" "$WORK/s.plain/experts" || die "not all experts are right: $*"
}

# Reads experts 0/0 to 0/4 often, others now and then.
use()
{
	local i
	for ((i = 0; i < $1; i++)); do
		cmp "$MNT/experts/000/00$((i % 5))" "$WORK/s.plain/experts/000/00$((i % 5))"
	done
}

# hot_experts N: waits until that many are on the hot drive.
hot_experts()
{
	local i
	for ((i = 0; i < 100; i++)); do
		[ "$(hot experts)" -ge "$1" ] && return
		use 5
		sleep 0.1
	done
	die "only $(hot experts) experts are on the hot drive"
}

section 'the popular ones are promoted, and read from there'
with_hot_dir --memory 0
[ "$(hot slots)" = 13 ] || die "$(hot slots) slots"
hot_experts 5
[ "$(hot promotions)" -ge 5 ] || die 'promotions are not counted'
[ "$(stat_of "$MNT" promotions)" = "$(hot promotions)" ] || die 'stats.json tells otherwise'
before=$(hot_reads)
use 10
after=$(hot_reads)
[ $((after - before)) -ge 3000000 ] || die "$((after - before)) bytes were read from the hot drive"
before=$(hot_reads)
cmp "$MNT/experts/001/019" "$WORK/s.plain/experts/001/019"
[ "$(hot_reads)" = "$before" ] || die 'an expert was read from the hot drive that is not there'
expertctl drives "$MNT" | grep -Eq ' hot .*/fast/test.hot$' || die 'expertctl drives does not show it'
all_right 'with a hot drive'
unmount "$MNT"

section 'a restart: they are there at once, also for a daemon with a hot store'
for memory in 0 12M; do
	with_hot_dir --memory $memory --no-warm
	for ((i = 0; i < 50; i++)); do
		[ "$(hot experts)" -ge 5 ] && break
		sleep 0.1
	done
	[ "$(hot experts)" -ge 5 ] || die "$(hot experts) experts came back"
	[ "$(hot promotions)" = 0 ] || die 'they were copied once more'
	before=$(hot_reads)
	use 5
	[ "$(hot_reads)" -gt "$before" ] || die 'they are not read from the hot drive'
	all_right 'after a restart'
	unmount "$MNT"
done

section 'two daemons cannot have it'
with_hot_dir --memory 0
mkdir "$WORK/mnt2"
! expertfs --memory 0 --hot-dir "$FAST" --hot-dir-size 4M "$WORK/s" "$WORK/mnt2" 2>"$WORK/err" || die 'they can'
grep -q 'test.hot is used by another daemon$' "$WORK/err" || die "it said $(cat "$WORK/err")"
unmount "$MNT"

section 'a damaged copy is not served, and forgotten'
# The payload of each slot, behind its head: 300001 bytes on 4 KiB, and the head.
for ((slot = 0; slot < 13; slot++)); do
	printf damage | dd of="$FAST/test.hot" bs=1 seek=$((4096 + slot * 311296 + 50000)) conv=notrunc status=none
done
with_hot_dir --memory 0 --no-warm
hot_experts 1
all_right 'with a damaged hot drive'
[ "$(hot errors)" -ge 1 ] || die 'the damage was not counted'
[ "$(stat_of "$MNT" errors)" = 0 ] || die 'a reader saw it'
unmount "$MNT"

section 'kill -9 while experts are copied'
rm "$FAST/test.hot"
for round in 1 2 3 4; do
	with_hot_dir --memory 0 --no-warm
	use 15
	sleep 0.$((7 + RANDOM % 3))
	kill -KILL "$(daemon_pid "$MNT")"
	umount -l "$MNT"
	with_hot_dir --memory 0 --verify always --no-warm
	all_right "after kill $round"
	[ "$(hot errors)" = 0 ] || die 'the kill left a damaged copy'
	unmount "$MNT"
done

section 'what makes no sense is refused'
expect_fail 1 'lies on the drive of the store itself' expertfs --hot-dir "$WORK" --hot-dir-size 4M "$WORK/s" "$MNT"
expect_fail 1 'one expert takes' expertfs --hot-dir "$FAST" --hot-dir-size 100k "$WORK/s" "$MNT"
rm "$FAST/test.hot"
expect_fail 1 'has [0-9.]+ .iB free' bash -c "dd if=/dev/zero of='$FAST/full' bs=1M count=30 status=none &&
	exec expertfs --hot-dir '$FAST' --hot-dir-size 4M '$WORK/s' '$MNT'"
