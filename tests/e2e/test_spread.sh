#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Drives come and go while the store is mounted and read: every expert is right at every moment, the daemon may be
# killed in the middle, the space of what moved comes back, and the shards tell the same as the catalog.
. "$(dirname "$0")/../lib.sh"
need_root
need_fuse

MNT=$WORK/mnt
PATH=$BUILD/tests:$PATH
mkdir "$MNT" "$WORK/c" "$WORK/d"

all_right()
{
	diff -r "$MNT/experts" "$WORK/s.plain/experts" || die "not all experts are right: $*"
}

# Reads and compares at random until STOP is there; a difference leaves WORK/wrong.
reader()
{
	local e
	while [ ! -e "$WORK/stop" ]; do
		e=00$((RANDOM % 3))/0$((10 + RANDOM % 20))
		cmp -s "$MNT/experts/$e" "$WORK/s.plain/experts/$e" || echo "$e" >>"$WORK/wrong"
	done
}

# disk FILE...: bytes that they take on the disk
disk()
{
	du -c -B1 "$@" | tail -n 1 | cut -f 1
}

drives()
{
	cat "$MNT/.expertfs/drives"
}

# field KEY: of the last task
task()
{
	drives | python3 -c 'import json, sys
t = json.load(sys.stdin)["tasks"]
print(t[-1].get(sys.argv[1], "") if t else "")' "$1"
}

# share N: experts on drive N, 0 if there is none of this number
share()
{
	drives | python3 -c 'import json, sys
print(sum(d["experts"] for d in json.load(sys.stdin)["drives"] if d["number"] == int(sys.argv[1])))' "$1"
}

section 'whole experts: a drive comes, experts are moved, drives go, under readers'
make_store "$WORK/s" 3 30 400001 2
mount_store "$WORK/s" "$MNT" --memory 12M
before=$(disk "$WORK/s/test.shard" "$WORK/s.drive1/test.shard")
reader &
reader &
readers=$(jobs -p)
expertctl add-drive "$MNT" "$WORK/c" >"$WORK/out"
grep -Eq '^[0-9]+ experts moved$' "$WORK/out" || die "it said $(cat "$WORK/out")"
moved=$(share 2)
[ "$moved" -gt 5 ] || die "the new drive has $moved experts"
[ "$(share 0)" -gt 0 ] && [ "$(share 1)" -gt 0 ] || die 'an old drive is empty'
[ $(($(share 0) + $(share 1) + moved)) -eq 90 ] || die 'experts are counted twice'
after=$(disk "$WORK/s/test.shard" "$WORK/s.drive1/test.shard")
[ $((before - after)) -gt $((moved * 400000)) ] || die "$before bytes on the old drives are now $after"
expertctl move "$MNT" 0/0-9 1/all --to 2 >/dev/null
[ "$(share 2)" -ge 40 ] || die 'not all were moved'
expertctl drives "$MNT" >"$WORK/out"
grep -Eq '^ +2 +ok .*/c/test.shard$' "$WORK/out" || die 'expertctl drives does not show the new drive'
grep -q 'move 2 0/0-9 1/all: done' "$WORK/out" || die 'expertctl drives does not show the move'
expertctl remove-drive "$MNT" "$WORK/s.drive1" --equal >/dev/null
[ ! -e "$WORK/s.drive1/test.shard" ] || die 'the shard of the removed drive is still there'
expertctl add-drive "$MNT" "$WORK/d" --equal >/dev/null
expertctl remove-drive "$MNT" 0 --equal >/dev/null
[ "$(share 0)" = 0 ] && [ "$(share 3)" -gt 5 ] || die 'the drives have the wrong shares'
touch "$WORK/stop"
# shellcheck disable=SC2086
wait $readers
[ ! -e "$WORK/wrong" ] || die "readers saw wrong bytes in $(sort -u "$WORK/wrong" | tr '\n' ' ')"
all_right 'after the moves'

section 'what cannot be is refused, with a sentence'
expect_fail 1 '7: the store has no such drive' expertctl remove-drive "$MNT" 7
expect_fail 1 'No such file' expertctl add-drive "$MNT" "$WORK/none"
expect_fail 1 'is drive 3 already' expertctl add-drive "$MNT" "$WORK/d"
expect_fail 1 'no expert 9/9' expertctl move "$MNT" 9/9 --to 2
expect_fail 2 'needs experts and --to' expertctl move "$MNT" 0/0
mount_store "$WORK/s" "$WORK/mnt2" --memory 0
expect_fail 1 's is in use by somebody else as well' expertctl remove-drive "$MNT" 2 --equal
unmount "$WORK/mnt2"
expertctl remove-drive "$MNT" 2 --equal >/dev/null
[ "$(share 3)" = 90 ] || die "drive 3 has $(share 3) experts"
expect_fail 1 'the last drive cannot be removed' expertctl remove-drive "$MNT" 3
expect_fail 1 'nothing has stopped' expertctl drives continue "$MNT"
all_right 'on the last drive'
expertctl drives probe "$MNT" | grep -Eq '^ +3 +([0-9.]+ GB/s|not measured: )' || die 'drives probe MOUNT'
unmount "$MNT"
expertctl drives probe "$WORK/s" | grep -Eq '^ +3 +([0-9.]+ GB/s|not measured: )' || die 'drives probe STORE'

section 'the shards tell the same as the catalog'
rm "$WORK"/s/catalog.db*
expertctl rebuild "$WORK/s" >"$WORK/out" 2>&1 || die "rebuild: $(cat "$WORK/out")"
mount_store "$WORK/s" "$MNT" --memory 12M
all_right 'after the rebuild'
expertctl add-drive "$MNT" "$WORK/c" --equal >/dev/null
[ "$(share 4)" = 45 ] || die "the new drive has $(share 4) experts"
unmount "$MNT"

section 'a striped store is cut anew'
rm -rf "$WORK"/s "$WORK"/s.* "$WORK"/c/* "$WORK"/d/*
make_store "$WORK/s" 3 30 700001 2 2
mount_store "$WORK/s" "$MNT" --memory 20M
expertctl add-drive "$MNT" "$WORK/c" --equal >/dev/null
for d in 0 1 2; do
	[ "$(share $d)" = 90 ] || die "drive $d has a part of $(share $d) experts"
done
all_right 'cut over three drives'

section 'kill -9 in the middle, again and again: it goes on'
for round in 1 2 3 4 5; do
	case $(task state) in queued | running) ;; *)
		# Whatever it was has come to its end: now the other way round.
		if [ "$(share 1)" -gt 0 ]; then
			expertctl remove-drive "$MNT" 1 --equal --no-wait
		elif [ "$(share 3)" -gt 0 ]; then
			expertctl remove-drive "$MNT" 3 --equal --no-wait
		else
			expertctl add-drive "$MNT" "$WORK/d" --equal --no-wait
		fi
		;;
	esac
	sleep 0.$((RANDOM % 3))$((RANDOM % 10))
	kill -KILL "$(daemon_pid "$MNT")"
	umount -l "$MNT"
	mount_store "$WORK/s" "$MNT" --memory 20M
	all_right "after kill $round"
done
for ((i = 0; i < 300; i++)); do
	case $(task state) in queued | running) sleep 0.1 ;; *) break ;; esac
done
case $(task state) in done | '') ;; *) die "the task is not done: $(drives)" ;; esac
all_right 'in the end'
used=$(disk "$WORK"/*/test.shard)
[ "$used" -lt $((90 * 700001 * 104 / 100)) ] || die "the shards take $used bytes"
unmount "$MNT"
rm "$WORK"/s/catalog.db*
expertctl rebuild "$WORK/s" >"$WORK/out" 2>&1 || die "rebuild: $(cat "$WORK/out")"
mount_store "$WORK/s" "$MNT" --memory 20M
all_right 'after the second rebuild'
unmount "$MNT"

section 'cancel: what has been moved stays moved'
mount_store "$WORK/s" "$MNT" --memory 20M
drive=$(drives | python3 -c 'import json, sys; print(json.load(sys.stdin)["drives"][-1]["number"])')
expertctl remove-drive "$MNT" "$drive" --equal --no-wait
expertctl drives cancel "$MNT"
for ((i = 0; i < 50; i++)); do
	case $(task state) in queued | running) sleep 0.1 ;; *) break ;; esac
done
case $(task state) in cancelled | done) ;; *) die "the task is $(task state)" ;; esac
all_right 'after the cancel'
unmount "$MNT"
