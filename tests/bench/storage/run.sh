#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# make bench-storage: what the daemon reaches, each figure beside a baseline that is measured in the same
# minutes. Arguments choose rows: hits cold drives big opens (default all). Medians of BENCH_ROUNDS (5) rounds,
# in which the daemon and its baseline take turns. BENCH_DIR (default TMPDIR or /tmp) is on the drive to be measured and needs
# 4 GB. As root; takes three minutes or so.
#
#	hits    a resident expert of 16 MiB, used by another process           warm: it lies in the hot store
#	cold    48 experts of 20 MiB, 8 asked for at once, against fio          cold: page cache dropped, hot store empty
#	drives  1, 2, 4 loop devices of 100 MB/s each, whole and striped        cold
#	big     19,456 experts: start, memory, first open                       the first open is cold
#	opens   resident experts opened by 8 threads, against an empty libfuse file system            warm
#
# What a virtual machine's host caches is not in our hands; the baseline meets it as well.
set -Eeuo pipefail
ROOT=$(cd "$(dirname "$0")/../../.." && pwd -P)
BUILD=${BUILD:-build}
case $BUILD in /*) ;; *) BUILD=$ROOT/$BUILD ;; esac
PATH=$BUILD:$BUILD/tests:$BUILD/tests/bench:$PATH
ROUNDS=${BENCH_ROUNDS:-5}
work=$(cd "$(mktemp -d "${BENCH_DIR:-${TMPDIR:-/tmp}}/expertfs-bench.XXXXXX")" && pwd -P)
mnt=$work/mnt
mkdir "$mnt"
table=$work/table
: >"$table"
# shellcheck source=tests/bench/lib.sh
. "$ROOT/tests/bench/lib.sh"
# shellcheck source=tests/bench/storage/throttle.sh
. "$ROOT/tests/bench/storage/throttle.sh"

leave()
{
	local status=$? point
	trap '' INT TERM
	trap - ERR
	set +e
	cd /
	while read -r point; do
		umount "$point" 2>/dev/null || umount -l "$point"
	done < <(awk -v top="$work/" 'index($5, top) == 1 { print $5 }' /proc/self/mountinfo | sort -r)
	throttle_end
	rm -rf --one-file-system "$work"
	exit $status
}
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'echo "run.sh:$LINENO: failed: $BASH_COMMAND" >&2' ERR

# row WHAT MEASURED TO_REACH CONDITION: a line of the table; CONDITION is awk's, empty: only for information.
row()
{
	local verdict=''
	[ -z "$4" ] || verdict=$(awk "BEGIN { print ($4) ? \"reached\" : \"MISSED\" }")
	printf '%-72s %16s  %-24s %s\n' "$1" "$2" "$3" "$verdict" >>"$table"
}

# start STORE OPTION...: the daemon
start()
{
	local store=$1
	shift
	forget "$store"
	"${in_group[@]}" expertfs "$@" "$store" "$mnt" 2>"$work/said" || {
		cat "$work/said" >&2
		return 1
	}
}
in_group=(env)

stop()
{
	local pid
	pid=$(daemon)
	umount "$mnt"
	for _ in $(seq 200); do
		[ -e "/proc/$pid" ] || return 0
		sleep 0.05
	done
	say "the daemon (process $pid) did not end"
	return 1
}

daemon()
{
	local pid
	for pid in $(pgrep -x expertfs); do
		if tr '\0' '\n' 2>/dev/null <"/proc/$pid/cmdline" | grep -Fxq -- "$mnt"; then
			echo "$pid"
		fi
	done
}

stat_of()
{
	python3 -c 'import json, sys; print(json.load(open(sys.argv[1] + "/.expertfs/stats.json"))[sys.argv[2]])' "$mnt" "$1"
}

bench_hits()
{
	local file=$mnt/experts/000/000 passthrough direct plain
	say 'hits: a resident expert of 16 MiB'
	make_store "$work/hits" 1 1 $((16 << 20))
	for ((i = 0; i < ROUNDS; i++)); do
		start "$work/hits" --mode passthrough --memory 256M
		use map "$file" 400 >>"$work/hits.passthrough"
		stop
		start "$work/hits" --mode direct --memory 256M
		use read "$file" 30 >>"$work/hits.direct"
		stop
		use map "$work/hits.plain/experts/000/000" 400 >>"$work/hits.file"
	done
	passthrough=$(median <"$work/hits.passthrough")
	direct=$(median <"$work/hits.direct")
	plain=$(median <"$work/hits.file")
	row 'resident 16 MiB expert, passthrough: open, map, touch, unmap, close' \
		"$(calc "$passthrough / 1000") ms" '0.12 ms' "$passthrough <= 120"
	row '  the same through the daemon (--mode direct): open, read, close' "$(calc "$direct / 1000") ms" '' ''
	row '  passthrough is so many times faster' "$(calc "$direct / $passthrough")" 20 "$direct >= 20 * $passthrough"
	row '  a plain file in the page cache, mapped' "$(calc "$plain / 1000") ms" '' ''
	rm -rf "$work"/hits*
}

# files STORE_LAYERS EXPERTS: the experts in layer order, layers shuffled the same way each time.
files()
{
	local layer
	for layer in $(seq 0 $(($1 - 1)) | shuf --random-source="$ROOT/LICENSE"); do
		for ((e = 0; e < $2; e++)); do
			printf '%s/experts/%03d/%03d\n' "$mnt" "$layer" "$e"
		done
	done
}

# readers_rate LAYERS EXPERTS: bytes a second of 8 readers over all experts, none of which is in memory.
readers_rate()
{
	local list got
	mapfile -t list < <(files "$1" "$2")
	got=$(readers 8 map "${list[@]}")
	[ "$(stat_of hits)" = 0 ] || say 'not all experts were cold'
	calc "${got% *} / ${got#* }"
}

# fio_rate FILE SIZE_OF_READS BYTES
fio_rate()
{
	"${in_group[@]}" fio --name=baseline --filename="$1" --rw=randread --bs="$2" --io_size="$3" --direct=1 \
		--iodepth=16 --ioengine=io_uring --randseed=7 --output-format=json >"$work/fio.json"
	python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["jobs"][0]["read"]["bw_bytes"])' "$work/fio.json"
}

bench_cold()
{
	local layers=6 experts=8 bytes=$((20 << 20)) all share daemon fio1 fio20 best
	all=$((layers * experts * bytes))
	command -v fio >/dev/null || {
		row 'cold experts, 8 at once' 'no fio here' '' ''
		return
	}
	say 'cold: 48 experts of 20 MiB, 8 at once, against fio'
	make_store --no-plain "$work/cold" $layers $experts $bytes
	fio_rate "$work/cold/test.shard" 1M $all >/dev/null # the host's caches, the same for all
	for ((i = 0; i < 2 * ROUNDS; i++)); do
		cold_caches
		start "$work/cold" --memory $((all + all / 4 + (128 << 20)))
		readers_rate $layers $experts >>"$work/cold.daemon"
		stop
		cold_caches
		fio_rate "$work/cold/test.shard" 1M $all >>"$work/cold.fio1"
		cold_caches
		fio_rate "$work/cold/test.shard" 20M $all >>"$work/cold.fio20"
	done
	daemon=$(median <"$work/cold.daemon")
	fio1=$(median <"$work/cold.fio1")
	fio20=$(median <"$work/cold.fio20")
	best=cold.fio1
	[ "$(calc "$fio1 > $fio20")" = 1 ] || best=cold.fio20
	# The median of the rounds' shares: the speed of a drive that others use as well drifts more than they do.
	share=$(paste "$work/cold.daemon" "$work/$best" | awk '{ print $1 / $2 }' | median)
	row 'cold experts, 8 at once, one drive: share of the better fio' "$share" 0.95 "$share >= 0.95"
	row '  the daemon' "$(calc "int($daemon / 1e6)") MB/s" '' ''
	row '  fio randread, O_DIRECT, depth 16, reads of 1 MiB' "$(calc "int($fio1 / 1e6)") MB/s" '' ''
	row '  the same, reads of 20 MiB' "$(calc "int($fio20 / 1e6)") MB/s" '' ''
	row '  the fastest round of the daemon, and of fio' \
		"$(sort -g "$work/cold.daemon" | tail -n 1 | awk '{ print int($1 / 1e6) }') MB/s" \
		"$(sort -g "$work"/cold.fio* | tail -n 1 | awk '{ print int($1 / 1e6) }') MB/s" ''
	say "cold, MB/s by rounds (daemon, fio 1 MiB, fio 20 MiB): $(paste "$work/cold.daemon" "$work/cold.fio1" "$work/cold.fio20" |
		awk '{ printf "%d %d %d; ", $1 / 1e6, $2 / 1e6, $3 / 1e6 }')"
	rm -rf "$work"/cold*
}

# N drives, so many parts an expert: rates into $work/drives.N.PARTS.
drives_round()
{
	local n=$1 parts=$2 layers=$((2 * $1)) store=$work/d/s
	make_store --no-plain "$store" $layers 8 $((20 << 20)) "$n" "$parts"
	cold_caches
	start "$store" --memory 2G
	readers_rate $layers 8 >>"$work/drives.$n.$parts"
	stop
	rm -rf "${store:?}"/* "$store".drive?/*
}

bench_drives()
{
	local rate=100000000 one n parts got name
	throttle_possible || {
		row '1, 2, 4 drives' 'no blkio here' '' ''
		return
	}
	say 'drives: loop devices of 100 MB/s'
	mkdir "$work/d"
	throttle_drive "$work/d/s" $((700 << 20)) $rate
	for n in 1 2 3; do
		throttle_drive "$work/d/s.drive$n" $((700 << 20)) $rate
	done
	in_group=(throttled)
	for ((i = 0; i < (ROUNDS + 1) / 2; i++)); do
		for n in 1 2 4; do
			drives_round $n 1
			[ $n = 1 ] || drives_round $n $n
		done
		if command -v fio >/dev/null; then
			head -c $((320 << 20)) /dev/urandom >"$work/d/s/file"
			cold_caches
			fio_rate "$work/d/s/file" 1M $((320 << 20)) >>"$work/drives.fio"
			rm "$work/d/s/file"
		fi
	done
	in_group=(env)
	one=$(median <"$work/drives.1.1")
	row 'one drive of 100 MB/s' "$(calc "int($one / 1e5) / 10") MB/s" '' ''
	[ ! -e "$work/drives.fio" ] ||
		row '  fio randread on it' "$(calc "int($(median <"$work/drives.fio") / 1e5) / 10") MB/s" '' ''
	for n in 2 4; do
		for parts in 1 $n; do
			name=whole
			[ $parts = 1 ] || name=striped
			got=$(median <"$work/drives.$n.$parts")
			row "  $n of them, $name" "$(calc "int($got / 1e5) / 10") MB/s" \
				"$(calc "int(0.95 * $n * $one / 1e5) / 10") (0.95 x $n)" "$got >= 0.95 * $n * $one"
		done
	done
	throttle_end
	rm -rf "$work"/d "$work"/drives.*
}

milliseconds()
{
	calc "int($EPOCHREALTIME * 1000 - $1 * 1000)"
}

bench_big()
{
	local began rss
	say 'big: 19,456 experts'
	make_store --first-layer 3 --share 4 --no-plain "$work/big" 76 256 $((20 << 20))
	for ((i = 0; i < ROUNDS; i++)); do
		cold_caches
		[ ! -e "$work/big/catalog.new" ] || cp "$work/big/catalog.new" "$work/big/catalog.db"
		began=$EPOCHREALTIME
		start "$work/big" --memory 0
		milliseconds "$began" >>"$work/big.mounted"
		head -c 4096 "$mnt/experts/078/255" >/dev/null
		milliseconds "$began" >>"$work/big.opened"
		sed -n 's/^VmRSS:[[:space:]]*\([0-9]*\) kB/\1/p' "/proc/$(daemon)/status" >>"$work/big.rss"
		began=$EPOCHREALTIME
		ls -lR "$mnt/experts" >/dev/null
		milliseconds "$began" >>"$work/big.ls"
		stop
	done
	rss=$(calc "int($(median <"$work/big.rss") / 102.4) / 10")
	row '19,456 experts: mounted after' "$(median <"$work/big.mounted") ms" '2000 ms' "$(median <"$work/big.mounted") < 2000"
	row '  first open (4 KiB read) served after' "$(median <"$work/big.opened") ms" '1000 ms' "$(median <"$work/big.opened") < 1000"
	row '  memory of the daemon, no hot store' "$rss MiB" '64 MiB' "$rss < 64"
	row '  ls -lR of all of them' "$(median <"$work/big.ls") ms" '' ''
	rm -rf "$work"/big*
}

bench_opens()
{
	local list daemon empty
	say 'opens: 8 threads'
	make_store --no-plain "$work/opens" 8 8 65536
	mkdir "$work/empty"
	mapfile -t list < <(files 8 8)
	start "$work/opens" --memory 64M
	empty_fs "$work/empty" 2>/dev/null &
	for _ in $(seq 50); do
		mountpoint -q "$work/empty" && break
		sleep 0.1
	done
	cat "${list[@]}" >/dev/null
	for ((i = 0; i < ROUNDS; i++)); do
		opens 8 2 "${list[@]}" >>"$work/opens.daemon"
		opens 8 2 "$work/empty"/{0..63} >>"$work/opens.empty"
	done
	stop
	umount "$work/empty"
	wait
	daemon=$(median <"$work/opens.daemon")
	empty=$(median <"$work/opens.empty")
	row 'opens of resident experts, 8 threads' "$daemon /s" "50000 /s or $empty" "$daemon >= 50000 || $daemon >= $empty"
	row '  an empty libfuse file system' "$empty /s" '' ''
	rm -rf "$work"/opens* "$work/empty"
}

[ "$(id -u)" -eq 0 ] || {
	echo 'bench-storage: needs root' >&2
	exit 1
}
[ $# -gt 0 ] || set -- hits cold drives big opens
for name; do
	case $name in
	hits | cold | drives | big | opens) ;;
	*)
		echo "bench-storage: no row $name; there are hits cold drives big opens" >&2
		exit 2
		;;
	esac
	"bench_$name"
done
printf '\n%s, %s CPUs, Linux %s, %s rounds\n\n' "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)" "$(nproc)" "$(uname -r)" "$ROUNDS"
cat "$table"
