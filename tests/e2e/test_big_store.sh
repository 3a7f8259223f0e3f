#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A store with as many experts as GLM-5.2 has: 76 layers (3 to 78) of 256, 20 MiB each. All but four
# of them share their records, so it takes 80 MiB of disk. It must be up at once, with little memory, and listing it
# must not be a pause. `make bench-storage` measures the same; here are only the bounds.
. "$(dirname "$0")/../lib.sh"
need_root
need_fuse

MNT=$WORK/mnt
PATH=$BUILD/tests:$PATH
LAYERS=76 EXPERTS=256 BYTES=$((20 << 20))
# Instrumented programs are slower and larger.
slower=${SANITIZE:+5}
slower=${slower:-1}

now_ms()
{
	local now=${EPOCHREALTIME/[.,]/}
	echo $((now / 1000))
}

# within MS WHAT CMD...: CMD succeeds in that time; its output is in $WORK/out.
within()
{
	local limit=$(($1 * slower)) what=$2 start took
	shift 2
	start=$(now_ms)
	"$@" >"$WORK/out"
	took=$(($(now_ms) - start))
	echo "$what: $took ms"
	[ $took -le $limit ] || die "$what took $took ms, more than $limit"
}

first_open()
{
	mount_store "$WORK/big" "$MNT" --memory "$1"
	cmp -n 4096 "$MNT/experts/078/255" "$WORK/big.plain/experts/078/255"
}

section 'a store of 19,456 experts'
make_store --first-layer 3 --share 4 "$WORK/big" $LAYERS $EXPERTS $BYTES

section 'more memory than the machine has is refused, with what is missing'
mkdir "$MNT"
[ "$(awk '$1 == "MemAvailable:" { print $2 }' /proc/meminfo)" -gt $((360 << 20)) ] ||
	expect_fail 1 '[-]-memory 370 GiB does not fit: [0-9.]+ .iB is available, [0-9.]+ GiB is missing' expertfs --memory 370G "$WORK/big" "$MNT"

for memory in 0 64M; do
	section "--memory $memory: mounted in 2 s, its first open a second later at most"
	within 1000 'from the start to the first bytes' first_open $memory
	rss=$(sed -n 's/^VmRSS:[[:space:]]*\([0-9]*\) kB/\1/p' "/proc/$(daemon_pid "$MNT")/status")
	# The hot store is shared memory that the daemon does not map in passthrough mode.
	echo "the daemon's memory: $rss KiB"
	[ "$rss" -lt $((65536 * slower)) ] || die "the daemon takes $rss KiB"

	# ls asks the daemon for two attributes of each file (ACL, SELinux), which the kernel does not cache.
	within 4000 'ls -lR' ls -lR "$MNT/experts"
	[ "$(grep -c '^-' "$WORK/out")" = $((LAYERS * EXPERTS)) ] || die 'ls does not see every expert'
	within 4000 'ls -lR again' ls -lR "$MNT/experts"
	within 2000 'find' find "$MNT/experts" -type f -size +"$((BYTES - 1))"c
	[ "$(wc -l <"$WORK/out")" = $((LAYERS * EXPERTS)) ] || die 'find does not see every expert'
	within 2000 'du' du -s --apparent-size --block-size=1 "$MNT/experts"
	[ "$(cut -f 1 "$WORK/out")" -ge $((LAYERS * EXPERTS * BYTES)) ] || die "du says $(cat "$WORK/out")"
	[ "$(stat_of "$MNT" opens)" = 1 ] || die 'listing opened experts'

	within 1000 'statfs' stat -f -c '%b %S %a %c %d' "$MNT"
	read -r blocks size free files unused <"$WORK/out"
	[ $((blocks * size)) = $((LAYERS * EXPERTS * BYTES)) ] && [ "$free" = 0 ] && [ "$files" -ge $((LAYERS * EXPERTS)) ] &&
		[ "$unused" = 0 ] || die "statfs says $(cat "$WORK/out")"
	within 1000 'the statistics' cat "$MNT/.expertfs/stats.json"
	[ "$(stat_of "$MNT" experts.total)" = $((LAYERS * EXPERTS)) ] || die 'the statistics miss experts'
	[ "$(stat_of "$MNT" memory.used)" -le $((64 << 20)) ] || die 'more in use than --memory'
	for name in 003/000 041/127; do
		cmp "$MNT/experts/$name" "$WORK/big.plain/experts/$name"
	done
	[ ! -e "$MNT/experts/002" ] && [ ! -e "$MNT/experts/079" ] || die 'a layer too many'
	within 1000 'unmounting' unmount "$MNT"
done
