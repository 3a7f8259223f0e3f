#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# make soak: SOAK_SECONDS (600) of everything at once. Random readers that compare every byte, in a store three
# times larger than the memory, while experts are prefetched, pinned, warmed and evicted, the policy changes, and
# statistics and folders are read; in the last third the mount is taken away under the readers and comes back, in
# passthrough and direct mode by turns. No error, no wrong byte, no leak, and memory within the budget at
# every sample. tests/e2e/test_soak.sh is a short one.
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
need_root
need_fuse

total=${SOAK_SECONDS:-600}
READERS=6 LAYERS=4 EXPERTS=32 BYTES=1300001
BUDGET=$((64 << 20))
MNT=$WORK/mnt
PLAIN=$WORK/s.plain
leaving=$WORK/leaving # while this file is there, the mount may be away
log=$WORK/daemon.log
samples=$WORK/samples
over=$WORK/over
PATH=$BUILD/tests:$PATH
group=
mkdir "$MNT"
touch "$log" "$samples" "$over"

# A memory cgroup, so that the kernel says what the daemon holds, also what no process maps.
make_group()
{
	local dir
	if [ -e /sys/fs/cgroup/memory/memory.stat ]; then
		dir=/sys/fs/cgroup/memory/expertfs-soak-$$
	elif grep -qw memory /sys/fs/cgroup/cgroup.subtree_control 2>/dev/null; then
		dir=/sys/fs/cgroup/expertfs-soak-$$
	else
		return 0
	fi
	mkdir "$dir" 2>/dev/null && group=$dir
	return 0
}

leave_group()
{
	local status=$? i
	for ((i = 0; i < 50; i++)); do
		[ -d "$group" ] || break
		rmdir "$group" 2>/dev/null || sleep 0.1
		[ $i -ne 10 ] || umount -l "$MNT" 2>/dev/null
	done
	lib_leave $status
}
trap leave_group EXIT

# daemon MODE: in the foreground of a job of ours, so that its log and its exit status are ours.
daemon()
{
	# shellcheck disable=SC2016
	sh -c '[ -z "$0" ] || echo $$ >"$0/cgroup.procs"; exec "$@"' "$group" \
		expertfs -f --mode "$1" --memory $BUDGET "$WORK/s" "$MNT" 2>>"$log" &
	pid=$!
	for _ in $(seq 200); do
		! mountpoint -q "$MNT" || return 0
		[ -e /proc/$pid ] || break
		sleep 0.05
	done
	tail -n 5 "$log" >&2
	die "the daemon did not mount in mode $1"
}

daemon_ends()
{
	local i
	for ((i = 0; i < 400; i++)); do
		lib_running "$pid" || break
		sleep 0.05
	done
	! lib_running "$pid" || die 'the daemon did not end within 20 s'
	wait "$pid" || die "the daemon ended with $?"
}

# memory_of PID: bytes that are its own, its shared memory with them.
memory_of()
{
	if [ -n "$group" ]; then
		awk '$1 == "rss" || $1 == "anon" || $1 == "shmem" { n += $2 } END { printf "%d\n", n }' "$group/memory.stat"
	else
		awk '$1 == "RssAnon:" || $1 == "RssShmem:" { n += $2 } END { printf "%d\n", n * 1024 }' "/proc/$1/status"
	fi
}

# One line a sample: memory, private memory in KiB, descriptors. A mapping that outlives its file cannot be
# seen by the daemon: each reader may have one.
sample()
{
	local memory anon fds
	memory=$(memory_of "$pid" 2>/dev/null) || return 0
	anon=$(awk '$1 == "RssAnon:" { print $2 }' "/proc/$pid/status" 2>/dev/null) || return 0
	fds=$(find "/proc/$pid/fd" -type l 2>/dev/null | wc -l) || return 0
	echo "$memory $anon $fds" >>"$samples"
	[ "$memory" -le $((BUDGET + READERS * (2 << 20))) ] || echo "$memory" >>"$over"
}

random_experts()
{
	local layer=$((RANDOM % LAYERS)) first=$((RANDOM % EXPERTS)) last
	last=$((first + RANDOM % 4))
	[ $last -lt $EXPERTS ] || last=$((EXPERTS - 1))
	if [ $((RANDOM % 2)) = 0 ]; then
		echo "$layer/$first"
	else
		echo "$layer/$first-$last"
	fi
}

# command_file NAME LINE: writes the line to the control file. That a pin finds no room, or that what is to go is held or
# not there, are answers and no faults.
command_file()
{
	local file=$MNT/.expertfs/$1 said
	[ -w "$file" ] || die "there is no $file"
	said=$( { echo "$2" >"$file"; } 2>&1) && return
	case $said in
	*'Device or resource busy' | *'No space left on device' | *'No such file or directory' | \
		*'Resource temporarily unavailable' | *'File exists') ;;
	*) die "$1 $2: $said" ;;
	esac
}

# One random thing that somebody may do to a mount.
disturb()
{
	local policies=(lru expert lfru:weight=0.5 s3fifo sieve wtinylfu arc quota:lru)
	local commands=(prefetch prefetch pin unpin unpin warm evict)
	case $((RANDOM % 8)) in
	0) echo "${policies[RANDOM % ${#policies[@]}]}" >"$MNT/.expertfs/policy" ;;
	1) cat "$MNT/.expertfs/"{stats.json,metrics,map,top,usage,drives} >/dev/null ;;
	2) ls -lR "$MNT" >/dev/null ;;
	3) python3 -c 'import os, sys
for name in os.listxattr(sys.argv[1]): os.getxattr(sys.argv[1], name)' "$MNT/experts/001/003" ;;
	*) command_file "${commands[RANDOM % ${#commands[@]}]}" "$(random_experts)" ;;
	esac
}

start_readers()
{
	soak_reader "$MNT" "$PLAIN" "$1" $READERS "$leaving" &
	readers=$!
}

readers_end()
{
	wait $readers || die "the readers ended with $?"
}

# check_leaks FIRST: samples from FIRST on against the last ones. A sanitizer has memory of its own.
check_leaks()
{
	local first last
	[ -z "${SANITIZE:-}" ] || return 0
	first=$(sed -n "$1p" "$samples")
	last=$(tail -n 1 "$samples")
	echo "memory, private KiB, descriptors: $first ... $last"
	set -- $first $last
	[ $(($5 - $2)) -le 8192 ] || die "private memory grew from $2 to $5 KiB"
	[ $(($6 - $3)) -le 8 ] || die "descriptors grew from $3 to $6"
}

# at_rest: nothing is held or under way, and nothing went wrong.
at_rest()
{
	local i
	for ((i = 0; i < 50; i++)); do
		[ "$(stat_of "$MNT" experts.held) $(stat_of "$MNT" experts.loading)" != '0 0' ] || break
		sleep 0.1
	done
	[ "$(stat_of "$MNT" experts.held)" = 0 ] || die 'a handle leaked'
	[ "$(stat_of "$MNT" experts.loading)" = 0 ] || die 'a load hangs'
	[ "$(stat_of "$MNT" errors)" = 0 ] || die 'there were errors'
	[ "$(stat_of "$MNT" memory.used)" -le $BUDGET ] || die 'more in use than --memory'
	echo "hit rate $(stat_of "$MNT" hit_rate), $(stat_of "$MNT" evictions) evictions"
}

# One mount, disturbed for so many seconds.
disturbed()
{
	local until=$((SECONDS + $1)) n=0
	start_readers "$1"
	while [ $SECONDS -lt $until ]; do
		disturb || die 'a command failed'
		n=$((n + 1))
		[ $((n % 8)) -ne 0 ] || sample
		sleep 0.03
	done
	readers_end
	echo "$n commands"
}

# The mount goes away under the readers and comes back, until so many seconds have passed.
remounted()
{
	local until=$((SECONDS + $1)) n=0 modes=(direct passthrough)
	start_readers "$1"
	while [ $SECONDS -lt $until ]; do
		for _ in $(seq $((5 + RANDOM % 20))); do
			disturb || die 'a command failed'
			sample
			sleep 0.03
		done
		touch "$leaving"
		case $((RANDOM % 2)) in
		0) umount -l "$MNT" ;;
		1) kill -TERM "$pid" ;;
		esac
		daemon_ends
		daemon "${modes[n % 2]}"
		rm "$leaving"
		n=$((n + 1))
	done
	readers_end
	echo "$n times away and back"
}

section "$LAYERS x $EXPERTS experts of $BYTES bytes on two drives, --memory $BUDGET, $total s"
make_store "$WORK/s" $LAYERS $EXPERTS $BYTES 2 2 1
make_group
for mode in passthrough direct; do
	section "readers and commands, mode $mode"
	daemon $mode
	disturbed 1 # until tables and threads have their size
	: >"$samples"
	disturbed $((total / 3 - 1))
	at_rest
	[ $mode = direct ] || check_leaks 1 # in direct mode each resident expert is a mapping and a descriptor
	umount "$MNT"
	daemon_ends
done
section 'the mount goes away under the readers'
daemon passthrough
remounted $((total / 3))
at_rest
umount "$MNT"
daemon_ends
[ ! -s "$over" ] || [ -n "${SANITIZE:-}" ] ||
	die "memory was up to $(sort -n "$over" | tail -n 1) bytes, $(wc -l <"$over") times more than $BUDGET"
! grep -v -E ': (memory |no passthrough|policy |usage: |signal |unmounted|.* on .*: mode )' "$log" | head -n 5 | grep . ||
	die 'the daemon said something'
