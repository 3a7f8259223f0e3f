#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: counted by the daemon, kept in catalog.db over an unmount and a kill, filling the memory after a
# restart, shown and exported by expertctl; two daemons on one store; a store that cannot be written.
. "$(dirname "$0")/../lib.sh"
need_root
need_fuse

MNT=$WORK/mnt
PATH=$BUILD/tests:$PATH
S=$WORK/s

# sql QUERY: of the store's catalog.
sql()
{
	python3 -c '
import sqlite3, sys
db = sqlite3.connect("file:%s/catalog.db?mode=ro" % sys.argv[1], uri=True, timeout=20)
for row in db.execute(sys.argv[2]):
    print(*row, sep="|")' "$S" "$1"
}

# use LAYER/EXPERT TIMES
use()
{
	local i
	for ((i = 0; i < $2; i++)); do
		head -c 1 "$MNT/experts/$1" >"$WORK/byte"
	done
}

# wait_for COMMAND...: until it succeeds, at most 10 s.
wait_for()
{
	local i
	for ((i = 0; i < 200; i++)); do
		"$@" && return
		sleep 0.05
	done
	die "waited in vain for: $*"
}

resident_is()
{
	[ "$(stat_of "$MNT" experts.resident)" = "$1" ]
}

kill_daemon()
{
	local pid
	pid=$(daemon_pid "$MNT")
	kill -KILL "$pid"
	umount "$MNT"
	wait_for eval "! kill -0 $pid 2>/dev/null"
}

# in_foreground STORE [OPTION...]: mounts it so that all that the daemon says is in DAEMON_LOG.
in_foreground()
{
	mkdir -p "$MNT"
	expertfs -f --memory 64M "${@:2}" "$1" "$MNT" >>"$DAEMON_LOG" 2>&1 &
	wait_for mountpoint -q "$MNT"
}

section 'counted, written, shown'
make_store "$S" 2 8 1000001
mount_store "$S" "$MNT" --memory 64M
use 001/003 5
use 000/007 3
use 001/000 1
echo flush >"$MNT/.expertfs/usage"
[ "$(sql 'SELECT layer, expert, uses, loads FROM usage ORDER BY uses')" = $'1|0|1|1\n0|7|3|1\n1|3|5|1' ] ||
	die "the catalog has: $(sql 'SELECT * FROM usage')"
[ "$(sql "SELECT value FROM meta WHERE key = 'clock'")" = 9 ] || die 'the clock is wrong'
expertctl usage "$MNT" --top 2 >"$WORK/out"
[ "$(awk 'NR > 1 { print $1, $3, $NF }' "$WORK/out")" = $'1/3 5 resident\n0/7 3 resident' ] || die "$(cat "$WORK/out")"
expertctl usage "$MNT" --export "$WORK/live.csv"
expertctl usage "$S" --export >"$WORK/stored.csv"
[ "$(head -n 1 "$WORK/live.csv")" = layer,expert,heat,uses,loads,last_use,load_ns ] || die 'another head line'
[ "$(wc -l <"$WORK/live.csv")" = 17 ] && [ "$(wc -l <"$WORK/stored.csv")" = 4 ] || die 'another number of lines'
diff <(cut -d , -f 1,2,4- "$WORK/stored.csv" | tail -n +2) <(cut -d , -f 1,2,4- "$WORK/live.csv" | grep -v ',0,0,0,0$' | tail -n +2)
now=$(date +%s)
last=$(sql 'SELECT max(last_use) FROM usage')
[ $((now - last)) -ge 0 ] && [ $((now - last)) -lt 60 ] || die "last use is $last, now $now"
if printf 'nonsense\n' 2>"$WORK/err" >"$MNT/.expertfs/usage"; then
	die 'nonsense is obeyed'
fi
unmount "$MNT"

section 'after a restart: warm, and heat goes on'
mount_store "$S" "$MNT" --memory 64M
wait_for resident_is 3
[ "$(stat_of "$MNT" opens)" = 0 ] || die 'a fill counts as use'
use 001/003 1
[ "$(stat_of "$MNT" hits)" = 1 ] || die 'the warm expert was no hit'
unmount "$MNT" # the end of the daemon writes
[ "$(sql 'SELECT uses FROM usage WHERE layer = 1 AND expert = 3')" = 6 ] || die 'not added to what was known'

section 'the hottest come first where memory is short'
mount_store "$S" "$MNT" --memory 64M --no-warm
for expert in 0 1 2 3 4 5 6 7; do
	use 000/00$expert $((expert + 8))
done
[ "$(stat_of "$MNT" experts.resident)" = 8 ] || die '--no-warm has filled the memory'
unmount "$MNT"
# In direct mode an expert takes its bytes, not a huge page.
mount_store "$S" "$MNT" --memory 13M --mode direct
settled()
{
	local before
	before=$(stat_of "$MNT" experts.resident)
	sleep 0.3
	[ "$before" -gt 0 ] && [ "$(stat_of "$MNT" experts.resident)" = "$before" ]
}
wait_for settled
n=$(stat_of "$MNT" experts.resident)
[ "$n" -ge 1 ] && [ "$n" -lt 10 ] || die "$n experts are resident: the memory is not short"
expertctl usage "$MNT" --top 16 >"$WORK/out"
[ "$(awk 'NR > 1 && NR <= '"$n"' + 1 { print $NF }' "$WORK/out" | sort -u)" = resident ] || die "$(cat "$WORK/out")"
[ "$(grep -c resident "$WORK/out")" = "$n" ] || die "$(cat "$WORK/out")"
unmount "$MNT"

section 'a kill loses what was not written, and no more'
mount_store "$S" "$MNT" --memory 64M
use 000/000 10
echo flush >"$MNT/.expertfs/usage"
before=$(sql 'SELECT sum(uses) FROM usage')
use 000/001 10
kill_daemon
after=$(sql 'SELECT sum(uses) FROM usage')
[ "$after" -ge "$before" ] && [ "$after" -le $((before + 10)) ] || die "$before uses, $after after the kill"
mount_store "$S" "$MNT" --memory 64M
wait_for resident_is 10
use 000/001 1
unmount "$MNT"
[ "$(sql 'SELECT sum(uses) FROM usage')" = $((after + 1)) ] || die 'the next daemon does not go on from there'

section 'two daemons on one store'
mount_store "$S" "$MNT" --memory 64M
first=$MNT
MNT=$WORK/second
in_foreground "$S" --no-warm
use 001/007 4
[ "$(stat_of "$MNT" usage.recording)" = false ] && [ "$(stat_of "$first" usage.recording)" = true ] ||
	die 'not the first one alone records'
if echo flush 2>"$WORK/err" >"$MNT/.expertfs/usage"; then
	die 'the second daemon writes'
fi
unmount "$MNT"
grep -q 'usage is not recorded: .*another daemon' "$DAEMON_LOG" || die 'the second daemon does not say why'
MNT=$first
unmount "$MNT"
[ -z "$(sql 'SELECT uses FROM usage WHERE layer = 1 AND expert = 7')" ] || die 'the second daemon has recorded'

section 'a store that cannot be written'
mkdir "$WORK/ro"
mount --bind "$S" "$WORK/ro"
mount -o remount,bind,ro "$WORK/ro"
cp "$S/catalog.db" "$WORK/before.db"
in_foreground "$WORK/ro"
wait_for resident_is 10
use 001/007 4
unmount "$MNT"
[ "$(grep -c 'usage is not recorded: .*cannot be written' "$DAEMON_LOG")" = 1 ] || die 'it does not say so, or not once'
cmp "$S/catalog.db" "$WORK/before.db"
# A killed daemon has left what it wrote last in the WAL, and that can be read by nobody there.
mount_store "$S" "$MNT" --memory 64M
use 000/000 1
echo flush >"$MNT/.expertfs/usage"
kill_daemon
rm -f "$S/catalog.db-shm"
expect_fail 1 'cannot be read where they cannot be written' expertfs "$WORK/ro" "$MNT"
expect_fail 1 'cannot be read where they cannot be written' expertctl usage "$WORK/ro"
# The kernel gives back the files of an io_uring some time after its process has ended.
wait_for umount "$WORK/ro" 2>"$WORK/err"

section 'a full drive: kept in memory until there is room'
mkdir "$WORK/small"
mount -t tmpfs -o size=24m small "$WORK/small"
make_store --no-plain "$WORK/small/s" 2 64 100001
in_foreground "$WORK/small/s"
dd if=/dev/zero of="$WORK/small/fill" bs=64k status=none 2>"$WORK/err" || true
for expert in "$MNT"/experts/*/*; do
	head -c 1 "$expert"
done >"$WORK/out"
if echo flush 2>"$WORK/err" >"$MNT/.expertfs/usage"; then
	die 'usage is written to a full drive'
fi
grep -q 'No space left' "$WORK/err" || die "$(cat "$WORK/err")"
[ "$(stat_of "$MNT" usage.errors)" -ge 1 ] || die 'not counted'
grep -q 'usage cannot be written, and is kept in memory: ' "$DAEMON_LOG" || die 'not said'
rm "$WORK/small/fill"
echo flush >"$MNT/.expertfs/usage"
grep -q 'usage is written again' "$DAEMON_LOG" || die 'not said that it goes on'
[ "$(S=$WORK/small/s sql 'SELECT sum(uses) FROM usage')" = 128 ] || die 'uses were lost'
unmount "$MNT"
dd if=/dev/zero of="$WORK/small/fill" bs=64k status=none 2>"$WORK/err" || true
mount_store "$WORK/small/s" "$MNT" --memory 64M
grep -q 'usage is not recorded: .*No space left' "$DAEMON_LOG" || die 'not said at the start'
cat "$MNT"/experts/*/* >"$WORK/out"
unmount "$MNT"
wait_for umount "$WORK/small" 2>"$WORK/err"

section 'forgetting, and what makes no sense'
mount_store "$S" "$MNT" --memory 64M
expect_fail 1 'another daemon that serves it records' expertctl usage "$S" --reset
unmount "$MNT"
expertctl usage "$S" --reset
[ "$(sql 'SELECT count(*) FROM usage')" = 0 ] || die 'not forgotten'
expertctl usage "$S" | grep -q 'no expert was used yet' || die 'usage out of nothing'
expect_fail 2 'is a folder' expertctl usage --export "$S"
expect_fail 1 'no store is mounted on' expertctl usage "$WORK"
expect_fail 2 'needs a number' expertctl usage "$S" --top x
expect_fail 2 'goes alone' expertctl usage --reset
expect_fail 1 "reset is for a store .*, and $WORK is none" expertctl usage "$WORK" --reset
