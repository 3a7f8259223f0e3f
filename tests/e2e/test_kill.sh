#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# kill -9 at any moment loses nothing: a pack that goes on afterwards, a daemon that writes usage, one
# that moves experts to another drive and back, one that copies them to a faster drive, a rebuild. Each
# round does one of these, kills it after a random time, and then every expert must be there with its bytes, the
# catalog must be sound, and `expertctl verify` must find no fault.
#
# KILL_ROUNDS rounds (default 10; `make kill-test` does 100), KILL_SEED to repeat a run.
. "$(dirname "$0")/../lib.sh"
need_root
need_fuse

MNT=$WORK/mnt
PATH=$BUILD/tests:$PATH
ROUNDS=${KILL_ROUNDS:-10}
RANDOM=${KILL_SEED:=$((RANDOM))}
echo "KILL_SEED=$KILL_SEED"

cd "$WORK" || exit
mkdir "$MNT"

# -- the store that all is compared with ----------------------------------------------------------

now_ms()
{
	local now=${EPOCHREALTIME/[.,]/}
	echo $((now / 1000))
}

# pack [exec]: into `packed`, on two drives, striped or whole; with exec it is the process itself.
layout=whole
pack()
{
	mkdir -p drive0 drive1
	# shellcheck disable=SC2086
	$1 coli-pack --layout $layout --drive drive0 --drive drive1 "$TEST_DATA/tale-moe" packed >pack.out 2>pack.err
}

section 'a store to compare with'
start=$(now_ms)
pack ''
PACK_MS=$(($(now_ms) - start))
expertctl export packed plain >out
rm -rf packed drive0 drive1
make_store small 3 8 300001 2 2 2

# -- killing and checking -------------------------------------------------------------------------

# nap MS: a random time up to that.
nap()
{
	local ms=$((RANDOM % ($1 + 1)))
	sleep "$((ms / 1000)).$(printf %03d $((ms % 1000)))"
}

# A killed daemon leaves its mount behind.
kill_daemon()
{
	local pid
	pid=$(daemon_pid "$MNT") || die 'the daemon is gone before it was killed'
	kill -KILL "$pid"
	while kill -0 "$pid" 2>/dev/null; do
		sleep 0.01
	done
	umount -l "$MNT"
}

# Something that was started with & and may have ended by itself.
kill_job()
{
	kill -KILL "$1" 2>/dev/null || true
	wait "$1" 2>/dev/null || true
}

sql()
{
	python3 -c '
import sqlite3, sys
print(sqlite3.connect(sys.argv[1] + "/catalog.db", timeout=20).execute(sys.argv[2]).fetchone()[0])' "$1" "$2"
}

# check STORE PLAIN [OPTION...]: it mounts without its catalog being made anew, and is whole.
check()
{
	local store=$1 plain=$2
	shift 2
	[ "$(sql "$store" 'PRAGMA integrity_check')" = ok ] || die "$store: the catalog is damaged"
	: >"$DAEMON_LOG"
	mount_store "$store" "$MNT" --memory 64M "$@"
	! grep -q 'anew' "$DAEMON_LOG" || die "$store: the catalog had to be made anew"
	diff -r "$MNT/experts" "$plain/experts"
	expertctl verify --fast "$MNT" >verify.out 2>&1 || die "$store: $(cat verify.out)"
	unmount "$MNT"
}

# Readers that open experts all the time, until the mount goes away.
load()
{
	local layer expert
	while :; do
		layer=$((RANDOM % 3)) expert=$((RANDOM % 8))
		cat "$MNT/experts/00$layer/00$expert" 2>/dev/null >"$1" || break
		cmp -s "$1" "small.plain/experts/00$layer/00$expert" || echo "$layer/$expert" >>wrong
	done
}

# -- what is killed -------------------------------------------------------------------------------

# A pack, killed up to three times before it may end.
kill_pack()
{
	local kills=$((1 + RANDOM % 3)) layouts=(whole stripe) pid
	layout=${layouts[RANDOM % 2]}
	rm -rf packed packed.partial drive0 drive1
	while ((kills-- > 0)); do
		(pack exec) &
		pid=$!
		nap $((PACK_MS * 5 / 4))
		kill_job $pid
		[ ! -d packed ] || break
	done
	[ -d packed ] || pack '' || die "the pack does not go on: $(cat pack.err)"
	[ ! -e packed.partial ] || die 'packed.partial is left'
	[ ! -e packed/pack.state ] || pack '' || die "the pack does not end: $(cat pack.err)"
	check packed plain
}

# A daemon under load that writes usage all the time.
kill_flush()
{
	local before after
	before=$(sql small 'SELECT coalesce(sum(uses), 0) FROM usage')
	mount_store small "$MNT" --memory 64M
	load r1 &
	load r2 &
	while echo flush 2>/dev/null >"$MNT/.expertfs/usage"; do :; done &
	nap 600
	kill_daemon
	wait
	[ ! -e wrong ] || die "wrong bytes of $(cat wrong)"
	after=$(sql small 'SELECT coalesce(sum(uses), 0) FROM usage')
	[ "$after" -ge "$before" ] || die "$before uses were recorded, now $after"
	check small small.plain
}

# A drive that is added and removed again while experts are read. What was killed in the middle goes on
# after the next start, so there may be one under way already.
kill_move()
{
	mkdir -p spread
	mount_store small "$MNT" --memory 64M
	load r1 &
	if [ "$(sql small 'SELECT count(*) FROM drives')" = 2 ]; then
		expertctl add-drive "$MNT" "$WORK/spread" --equal --no-wait >move.out 2>&1
	else
		expertctl remove-drive "$MNT" "$(sql small 'SELECT max(id) FROM drives')" --equal --no-wait >move.out 2>&1
	fi || grep -q -e 'under way' -e 'already' -e 'leaving' move.out || die "$(cat move.out)"
	nap 600
	kill_daemon
	wait
	[ ! -e wrong ] || die "wrong bytes of $(cat wrong)"
	sql small "SELECT 'drives: ' || count(DISTINCT drive) || ', extents on the last: ' || sum(drive > 1) FROM extents"
	check small small.plain
}

# Experts that are copied to a faster drive: a small memory, so that they are loaded again and again.
kill_hot()
{
	mkdir -p hot
	mountpoint -q hot || mount -t tmpfs -o size=16m hot hot
	mount_store small "$MNT" --memory 32M --no-warm --hot-dir "$WORK/hot" --hot-dir-size 4M
	# What is evicted is loaded again.
	while echo all >"$MNT/.expertfs/evict"; do sleep 0.02; done 2>/dev/null &
	load r1 &
	load r2 &
	nap 1500
	echo "promotions: $(stat_of "$MNT" promotions)"
	kill_daemon
	wait
	[ ! -e wrong ] || die "wrong bytes of $(cat wrong)"
	check small small.plain --hot-dir "$WORK/hot" --hot-dir-size 4M
}

# A rebuild of the catalog; a mount does it as well where it was killed between two catalogs.
kill_rebuild()
{
	local pid options=(--quick '')
	# shellcheck disable=SC2086
	(exec expertctl rebuild small ${options[RANDOM % 2]} >rebuild.out 2>&1) &
	pid=$!
	nap 120
	kill_job $pid
	if [ ! -e small/catalog.db ]; then
		mount_store small "$MNT" --memory 64M
		unmount "$MNT"
	fi
	check small small.plain
}

# -- the rounds -----------------------------------------------------------------------------------

kinds=(pack flush move hot rebuild)
for ((round = 1; round <= ROUNDS; round++)); do
	kind=${kinds[(round - 1) % ${#kinds[@]}]}
	section "round $round: $kind"
	"kill_$kind"
done

# What all the rounds have left must be enough to make the catalog anew.
section 'the catalog from the shards'
rm small/catalog.db
expertctl rebuild small >out
check small small.plain
