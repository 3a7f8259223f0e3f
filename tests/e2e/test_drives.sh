#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A store on several drives while they fail: a shard that is damaged, cut or gone, before the mount and under it, with
# a second copy of each expert and without. Every expert is right or gives EIO, and what happened is counted.
. "$(dirname "$0")/../lib.sh"
need_root
need_fuse

MNT=$WORK/mnt
PATH=$BUILD/tests:$PATH
mkdir "$MNT"

# fresh NAME EXPERTS BYTES DRIVES PARTS COPIES: a store of one layer in WORK/NAME.
fresh()
{
	rm -rf "${WORK:?}/$1" "$WORK/$1".*
	make_store "$WORK/$1" 1 "$2" "$3" "$4" "$5" "$6"
}

# shard NAME DRIVE: its path.
shard()
{
	[ "$2" -eq 0 ] && echo "$WORK/$1/test.shard" || echo "$WORK/$1.drive$2/test.shard"
}

all_right()
{
	diff -r "$MNT/experts" "$WORK/$1.plain/experts" || die "not all experts of $1 are right"
}

errors_of_drive()
{
	stat_of "$MNT" "drives.$1.errors"
}

# Writes 0xff over each 16th KiB of a shard's payload, behind its first two blocks.
damage()
{
	python3 - "$1" <<'PY'
import os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
for at in range(8192, os.fstat(fd).st_size, 16384):
    os.pwrite(fd, b"\xff\xfe\xff\xfe", at + 5)
PY
}

# Of a striped one, copies 0 and 2 have no drive in common.
section 'copies on several drives: all experts while one drive is damaged, cut, emptied or deleted under the mount'
for layout in '2 1 2' '4 2 3'; do
	# shellcheck disable=SC2086
	fresh r 12 300001 $layout
	victim=$(shard r 1)
	cp "$victim" "$WORK/kept"
	for how in 'damage 0' 'damage 7M' 'cut 7M' 'empty 0' 'delete 7M'; do # 5.4 MiB of it are not for experts
		# What was proved once is not looked at again, unless one asks for it.
		verify=first
		[ "${how% *}" != damage ] || verify=always
		mount_store "$WORK/r" "$MNT" --no-warm --memory "${how#* }" --verify $verify
		cmp "$MNT/experts/000/003" "$WORK/r.plain/experts/000/003"
		case $how in
		damage*) damage "$victim" ;;
		cut*) truncate -s 400000 "$victim" ;;
		empty*) truncate -s 0 "$victim" ;;
		delete*) rm "$victim" ;; # open still: nothing is noticed
		esac
		all_right r
		all_right r
		[ "$(stat_of "$MNT" errors)" = 0 ] || die 'an open failed'
		[ "${how% *}" = delete ] || [ "$(errors_of_drive 1)" -gt 0 ] || die "$how was not noticed"
		unmount "$MNT"
		cp "$WORK/kept" "$victim"
	done
done

section 'the same before the mount'
for layout in '2 1 2' '4 2 3'; do
	# shellcheck disable=SC2086
	fresh r 12 300001 $layout
	victim=$(shard r 1)
	cp "$victim" "$WORK/kept"
	for how in damage cut delete foreign; do
		case $how in
		damage) damage "$victim" ;;
		cut) truncate -s 400000 "$victim" ;;
		delete) rm "$victim" ;;
		foreign) cp "$(shard r 0)" "$victim" ;;
		esac
		mount_store "$WORK/r" "$MNT" --memory 64M
		all_right r
		[ "$(stat_of "$MNT" errors)" = 0 ] || die "an open failed: $how"
		unmount "$MNT"
		cp "$WORK/kept" "$victim"
	done
done

section 'one copy: refused without the drive; -o degraded serves the rest, EIO for the others, counted'
fresh s 8 300001 2 1 1
mv "$(shard s 1)" "$WORK/kept"
expect_fail 1 's.drive1/test.shard: the shard of drive 1 is missing' expertfs "$WORK/s" "$MNT"
for memory in 0 64M; do
	mount_store -o degraded "$WORK/s" "$MNT" --memory $memory
	for e in 0 2 4 6; do
		cmp "$MNT/experts/000/00$e" "$WORK/s.plain/experts/000/00$e"
	done
	for e in 1 3 5 7; do
		expect_fail 1 'Input/output error' cat "$MNT/experts/000/00$e"
	done
	[ "$(stat_of "$MNT" errors)" = 4 ] || die 'the errors were not counted'
	[ "$(find "$MNT/experts/000" -type f | wc -l)" = 8 ] || die 'an expert is not shown'
	unmount "$MNT"
done
mv "$WORK/kept" "$(shard s 1)"

section 'one copy, under the mount: EIO for the drive that goes, and all is right when it is back'
for io in uring threads; do
	mount_store "$WORK/s" "$MNT" --no-warm --memory 7M --io $io
	cp "$(shard s 1)" "$WORK/kept"
	truncate -s 0 "$(shard s 1)"
	for _ in 1 2 3; do
		for e in 1 3; do
			expect_fail 1 'Input/output error' cat "$MNT/experts/000/00$e"
			cmp "$MNT/experts/000/00$((e - 1))" "$WORK/s.plain/experts/000/00$((e - 1))"
		done
	done
	[ "$(stat_of "$MNT" errors)" = 6 ] || die 'the errors were not counted'
	[ "$(errors_of_drive 1)" -ge 6 ] || die 'the errors of the drive were not counted'
	[ "$(errors_of_drive 0)" = 0 ] || die 'errors of the wrong drive were counted'
	cat "$WORK/kept" >"$(shard s 1)"
	all_right s
	unmount "$MNT"
done

section 'both drives are read, in turn and side by side'
fresh b 24 1000003 2 1 2
mount_store "$WORK/b" "$MNT" --memory 12M
for _ in 1 2 3; do
	all_right b
done
one=$(stat_of "$MNT" drives.0.bytes_read) two=$(stat_of "$MNT" drives.1.bytes_read)
((one > two / 3 && two > one / 3)) || die "drive 0 read $one bytes, drive 1 $two"
unmount "$MNT"
fresh b 8 1000003 4 4 1
mount_store "$WORK/b" "$MNT" --memory 0
all_right b
for d in 0 1 2 3; do
	[ "$(stat_of "$MNT" drives.$d.bytes_read)" -ge $((8 * 249856)) ] || die "drive $d has no part of a stripe"
done
unmount "$MNT"

section 'readers while drives come and go'
fresh m 16 400001 3 1 2
mount_store "$WORK/m" "$MNT" --memory 8M
for d in 0 1 2; do
	cp "$(shard m $d)" "$WORK/kept$d"
done
for r in 1 2 3 4; do
	(
		for ((i = 0; i < 40; i++)); do
			e=$(printf '%03d' $(((i * 7 + r * 5) % 16)))
			cmp "$MNT/experts/000/$e" "$WORK/m.plain/experts/000/$e" || exit 1
		done
	) &
done
for i in 1 2 3 4 5 6; do
	d=$((i % 3))
	truncate -s 0 "$(shard m $d)"
	sleep 0.1
	cat "$WORK/kept$d" >"$(shard m $d)"
	sleep 0.2
done
for r in 1 2 3 4; do
	wait -n || die 'a reader failed'
done
[ "$(stat_of "$MNT" errors)" = 0 ] || die 'an open failed'
unmount "$MNT"

section 'a block device that fails, and comes back; the drive can be unmounted as soon as the store is'
LOOP=
drop_loop()
{
	umount "$WORK/l.drive1" 2>/dev/null || true
	[ -z "$LOOP" ] || losetup -d "$LOOP" || true
}
trap 'status=$?; drop_loop; lib_leave $status' EXIT
mkdir "$WORK/l.drive1"
truncate -s 24M "$WORK/image"
mkfs.ext4 -q -F "$WORK/image"
if LOOP=$(losetup --direct-io=on -f --show "$WORK/image" 2>"$WORK/err") && mount "$LOOP" "$WORK/l.drive1" 2>"$WORK/err"; then
	make_store "$WORK/l" 1 8 1000003 2 1 2
	# What the file system writes by itself would make the image longer again, and what is missing zeros.
	mount -o remount,ro "$WORK/l.drive1"
	mount_store "$WORK/l" "$MNT" --memory 0
	all_right l
	cp --sparse=always "$WORK/image" "$WORK/image.kept"
	truncate -s 1M "$WORK/image"
	for _ in 1 2 3; do
		all_right l
	done
	[ "$(stat_of "$MNT" drives.1.state)" = failing ] || die 'the drive does not count as failing'
	[ "$(stat_of "$MNT" errors)" = 0 ] || die 'an open failed'
	cat "$WORK/image.kept" >"$WORK/image"
	for ((i = 0; i < 100; i++)); do
		[ "$(stat_of "$MNT" drives.1.state)" = failing ] || break
		sleep 0.1
	done
	[ "$(stat_of "$MNT" drives.1.state)" = ok ] || die 'the drive is not used again'
	all_right l
	unmount "$MNT"
	umount "$WORK/l.drive1"
else
	echo "left out, there is no loop device: $(cat "$WORK/err")"
fi
