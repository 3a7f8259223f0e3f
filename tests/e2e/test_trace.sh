#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# expertctl trace on a live mount: that cachesim finds in the trace what was read, what is refused, and
# that a trace on a full drive, or of a daemon that is killed, says how it ended.
. "$(dirname "$0")/../lib.sh"
need_root
need_fuse

PATH=$BUILD/tests:$PATH
MNT=$WORK/mnt

# trace_ends REGEX FILE: so its last line.
trace_ends()
{
	tail -n 1 "$2" | grep -Eq -- "$1" || {
		tail -n 3 "$2"
		die "$2 does not end with /$1/"
	}
}

# wait_status REGEX: within ten seconds that is the status.
wait_status()
{
	local i
	for ((i = 0; i < 100; i++)); do
		expertctl trace "$MNT" status | grep -Eq -- "$1" && return
		sleep 0.1
	done
	die "the status is $(expertctl trace "$MNT" status), not /$1/"
}

# read_token A B: two experts of each of three layers.
read_token()
{
	local layer
	for layer in 001 002 003; do
		cat "$MNT/experts/$layer/00$1" "$MNT/experts/$layer/00$2" >"$WORK/read"
	done
}

section 'a trace from the start to the end'
make_store --first-layer 1 "$WORK/s" 3 8 20001
mount_store "$WORK/s" "$MNT" --memory 64M
[ "$(expertctl trace "$MNT" status)" = off ] || die 'a trace without being asked for'
[ "$(cd "$MNT/.." && expertctl trace "${MNT##*/}" status)" = off ] || die 'a mount without a slash is not taken'
read_token 7 7
cd "$WORK"
expertctl trace "$MNT" start t1
wait_status "^on $WORK/t1 0 events\$"
for token in 0 1 2 3; do
	read_token $token 5
done
wait_status "^on $WORK/t1 11 events\$"
expect_fail 1 '^expertctl: a trace is being recorded already' expertctl trace "$MNT" start t2
[ ! -e t2 ] || die 'a refused trace was begun'
trace_ends '^# not ended: recording went on after 11 events, 22 opens +$' t1
read_token 7 6
expertctl trace "$MNT" stop
[ "$(expertctl trace "$MNT" status)" = off ] || die 'the trace goes on'
read_token 6 5
trace_ends '^# complete: 15 events, 30 opens +$' t1
[ "$(head -n 4 t1)" = $'expertfs-trace 1 4 8\nsize 1 20001\nsize 2 20001\nsize 3 20001' ] || die 'a wrong head'
sed -n 's/^[0-9]* \([123] \)/\1/p' t1 >got
for token in '0 5' '1 5' '2 5' '3 5' '7 6'; do
	for layer in 1 2 3; do echo "$layer $token"; done
done >want
cmp got want
# Three layers of 8 experts: expert 5 of each is used four times, the others once.
cachesim --policy lru --capacity 100% --csv csv t1 >table
grep -q '^[^,]*t1,lru,480024,15,30,9,' csv || { cat csv; die 'cachesim reads something else'; }

section 'what is refused'
expect_fail 1 "^expertctl: $WORK/t1: exists" expertctl trace "$MNT" start t1
expect_fail 1 "^expertctl: $WORK/none/t: .*No such file" expertctl trace "$MNT" start none/t
expect_fail 1 '^expertctl: no trace is being recorded' expertctl trace "$MNT" stop
expect_fail 1 '^expertctl: no store is mounted on ' expertctl trace "$WORK" status
expect_fail 1 '^expertctl: no store is mounted on ' expertctl trace "$WORK" stop
expect_fail 2 '^expertctl: trace needs start FILE' expertctl trace "$MNT"
expect_fail 2 '^expertctl: trace needs start FILE' expertctl trace "$MNT" start
expect_fail 2 '^expertctl: trace needs start FILE' expertctl trace "$MNT" stop t2
for line in 'start' 'start ' 'start relative' 'begin' "start $(printf '%05000d' 0)"; do
	if printf '%s\n' "$line" 2>/dev/null >"$MNT/.expertfs/trace"; then
		die "the daemon took '${line:0:20}'"
	fi
done
[ "$(expertctl trace "$MNT" status)" = off ] || die 'something was begun'

section 'who looks at the status does not wait for the file of a trace that begins'
# It is to lie in the mount itself: the daemon asks itself, and needs a thread for the answer.
export MNT
timeout 60 bash -c '
	for _ in 1 2 3 4 5 6 7 8; do
		for _ in $(seq 60); do cat "$MNT/.expertfs/trace"; done &
	done
	for _ in $(seq 60); do
		! echo "start $MNT/experts/t" 2>/dev/null >"$MNT/.expertfs/trace" || exit 1
	done
	wait' >"$WORK/read" || die 'the daemon hangs, or writes into its own mount'
[ "$(sort -u "$WORK/read")" = off ] || die "the status is $(sort -u "$WORK/read")"

section 'an unmount ends it'
expertctl trace "$MNT" start t2
read_token 1 2
unmount "$MNT"
trace_ends '^# complete: 3 events, 6 opens +$' t2

section 'a full drive'
mount_store "$WORK/s" "$MNT" --memory 64M
mkdir small
mount -t tmpfs -o size=16k,mode=700 none small
dd if=/dev/zero of=small/fill bs=4096 count=3 status=none
expertctl trace "$MNT" start small/t
while expertctl trace "$MNT" status | grep -q '^on '; do
	for token in 0 1 2 3 4 5; do
		read_token $token 6
	done
	[ $SECONDS -lt 60 ] || die 'the drive is never full'
done
wait_status "^broken off $WORK/small/t [0-9]+ events: No space left on device\$"
expect_fail 1 'cut short after [0-9]+ events: No space left on device' expertctl trace "$MNT" stop
trace_ends '^# cut short after [0-9]+ events, [0-9]+ opens: No space left on device +$' small/t
events=$(tail -n 1 small/t | sed 's/^# cut short after \([0-9]*\) .*/\1/')
[ "$events" -gt 10 ] || die "only $events events fitted"
[ "$(grep -c '^[0-9]' small/t)" = "$events" ] || die 'another number of events'
cachesim --policy lru small/t >table
umount small

section 'a daemon that is killed'
expertctl trace "$MNT" start t3
read_token 3 4
read_token 5 4
wait_status '^on .* 5 events$'
pid=$(daemon_pid "$MNT")
kill -KILL "$pid"
umount -l "$MNT"
trace_ends '^# not ended: recording went on after 5 events, 10 opens +$' t3
cachesim --policy lru t3 >table
