#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# coli-pack over several drives: each layout with and without copies against a store on one drive, a
# drive that goes bad, speeds that are given, measured and kept, hot experts, and a kill at any moment.
. "$(dirname "$0")/../lib.sh"
need_root
need_fuse

MNT=$WORK/mnt

check_store()
{
	python3 "$ROOT/tests/reference/check_store.py" "$@"
}

# sql STORE QUERY: the rows of the answer, one a line.
sql()
{
	python3 -c '
import sqlite3, sys
for row in sqlite3.connect("file:%s/catalog.db?mode=ro&immutable=1" % sys.argv[1], uri=True).execute(sys.argv[2]):
    print(*row)' "$@"
}

clear_store()
{
	rm -rf store drive?/store.shard
}

nothing_left()
{
	local left
	left=$(find "$WORK" -maxdepth 3 \( -name '*.partial' -o -name 'store*' -o -name '.probe*' \))
	[ -z "$left" ] || die "left behind: $left"
}

# Every expert of `store`, as a reader gets it, is that of the store on one drive.
same_experts()
{
	mount_store store "$MNT" --memory 8M
	diff -r "$MNT/experts" "$WORK/fast/plain" >diff.out || die "experts differ: $(head -3 diff.out)"
	unmount "$MNT"
}

# In memory, where nothing waits for a drive; only what is measured lies on the drive of WORK.
mkdir "$WORK/fast" "$WORK/slow"
mount -t tmpfs -o size=1g none "$WORK/fast"
cd "$WORK/fast" || exit
MODEL=$WORK/fast/tale-moe
cp -r "$TEST_DATA/tale-moe" .
mkdir drive0 drive1 drive2
drives=(--drive drive0 --drive drive1 --drive drive2)
# 192 KiB an expert: three parts of the least length.
pack=(coli-pack --bits 32)

section 'the experts of a store on one drive'
"${pack[@]}" "$MODEL" store >out
check_store --spread store --copies 1 --parts 1
mount_store store "$MNT" --memory 0
cp -r "$MNT/experts" plain
unmount "$MNT"
clear_store

section 'each layout, with and without copies'
for layout in stripe whole; do
	for n in 1 2 3; do
		for copies in 1 2; do
			[ $copies -le $n ] || continue
			"${pack[@]}" "${drives[@]:0:2*n}" --layout $layout --replicas $copies \
				--speeds "$(seq -s, $n | tr 1-9 1)" "$MODEL" store >out 2>err
			case $layout,$n,$copies in
			stripe,*,1) parts=(--parts "$n") ;;
			stripe,3,2) parts=() ;; # two drives and one
			*) parts=(--parts 1) ;;
			esac
			check_store --spread store --copies $copies "${parts[@]}"
			same_experts
			clear_store
		done
	done
done
nothing_left

section 'a drive that is lost, or goes bad'
for layout in stripe whole; do
	"${pack[@]}" "${drives[@]}" --layout $layout --replicas 2 --speeds 3,2,1 "$MODEL" store \
		>out
	grep -q '^drives 0 and 1 are on one file system' out || die "said: $(cat out)"
	for d in 0 1 2; do
		bytes=$(stat -c %s drive$d/store.shard)
		mv drive$d/store.shard good
		if [ $layout = whole ]; then
			# The head is kept: all else is zeros, so no checksum holds.
			head -c 4096 good >drive$d/store.shard
			truncate -s "$bytes" drive$d/store.shard
		fi
		same_experts
		mv good drive$d/store.shard
	done
	clear_store
done

section 'speeds that are given'
bytes_on()
{
	sql store "SELECT sum(length) FROM extents WHERE drive = $1"
}
for layout in stripe whole; do
	"${pack[@]}" "${drives[@]:0:4}" --layout $layout --speeds 3G,1.5G "$MODEL" store >out
	grep -Eq '^drive 0 +.*: 3\.00 GiB/s as given, 6[67]\.[0-9] %' out || die "said: $(cat out)"
	ratio=$(($(bytes_on 0) * 100 / $(bytes_on 1)))
	[ $ratio -gt 190 ] && [ $ratio -lt 210 ] || die "$layout: the drives hold $ratio : 100"
	check_store --spread store
	same_experts
	clear_store
done

interrupt()
{
	local i
	env --default-signal=INT "${pack[@]}" "$@" "$MODEL" store >out 2>err &
	pid=$!
	for ((i = 0; i < 4000; i++)); do
		[ "$(stat -c %s drive0/store.shard.partial 2>/dev/null || echo 0)" -gt 1000000 ] && break
		sleep 0.005
	done
	kill -KILL $pid
	wait $pid 2>/dev/null || true
	[ -e store.partial/pack.state ] || die "there is nothing to resume: $(cat err)"
}
section 'speeds that are measured'
cd "$WORK/slow" || exit
mkdir drive0 drive1
# The first line of pack.state that gives the speeds.
speeds()
{
	grep -m1 '^speeds ' store.partial/pack.state
}
interrupt "${drives[@]:0:4}"
case $(stat -f -c %T drive0) in
ext2/ext3 | xfs | f2fs | btrfs)
	if speeds | grep -Eqx 'speeds measured [0-9]{7,} [0-9]{7,}'; then
		grep -Eq 'drive0: [0-9.]+ [MG]iB/s, .* from [0-9.]+ MiB at random' out || die "said: $(cat out)"
		# Other speeds than a measurement could give: a resumed pack takes what it finds.
		sed -i 's/^speeds measured .*/speeds measured 3000000000 1000000000/' store.partial/pack.state
		rm drive?/store.shard.partial
		"${pack[@]}" "${drives[@]:0:4}" "$MODEL" store >out 2>err
		grep -Eq '^drive 1 +.*: 954 MiB/s as measured, 25\.[0-9] %' out || die "said: $(cat out)"
		! grep -q 'at random' out || die 'a resumed pack measured'
	else
		grep -q 'cannot be measured: ' err || die "said: $(cat err)"
		"${pack[@]}" "${drives[@]:0:4}" "$MODEL" store >out 2>err
	fi
	;;
*) "${pack[@]}" "${drives[@]:0:4}" "$MODEL" store >out 2>err ;;
esac
grep -q 'resuming: ' err || die "said: $(cat err)"
same_experts
clear_store

rm -r drive0 drive1
cd "$WORK/fast" || exit

section 'a drive that cannot be measured'
"${pack[@]}" "${drives[@]:0:4}" "$MODEL" store >out 2>err
grep -Eq '^coli-pack: .*drive0 cannot be measured: it lies in memory; all drives are taken as equally fast' err ||
	die "said: $(cat err)"
grep -Eq '^drive 0 .*: taken as fast as the others, 50\.0 %' out || die "said: $(cat out)"
check_store --spread store --parts 2
clear_store

# A loop device that reads its file through the page cache would give the memory's speed.
truncate -s 200M "$WORK/slow/image"
if command -v mkfs.ext4 >/dev/null && mkfs.ext4 -q "$WORK/slow/image" &&
	mkdir -p "$WORK/slow/loop" && mount -o loop "$WORK/slow/image" "$WORK/slow/loop" 2>err; then
	"${pack[@]}" --drive "$WORK/slow/loop" --drive drive0 "$MODEL" store >out 2>err
	grep -q 'slow/loop cannot be measured: it lies on a loop device that reads through the page cache' err ||
		die "said: $(cat err)"
	rm -rf store drive0/store.shard
	umount "$WORK/slow/loop"
fi
rm -rf "$WORK"/slow/*

section 'hot experts'
cat >usage.csv <<END
layer,expert,heat,uses,loads,last_use,load_ns
3,7,12.5,9,2,1767225600,210000
1,63,0.25,1,1,1767225600,210000
6,0,99,120,1,1767225600,210000
2,2,0,1,1,1767225600,210000
END
"${pack[@]}" "${drives[@]}" --speeds 1,1,1 --replicate-hot 400K --usage usage.csv "$MODEL" store >out 2>err
[ "$(sql store 'SELECT DISTINCT layer, expert FROM extents WHERE copy = 1')" = $'3 7\n6 0' ] ||
	die 'the wrong experts have a second copy'
check_store --spread store
same_experts
clear_store
interrupt "${drives[@]}" --speeds 1,1,1 --replicate-hot 400K --usage usage.csv
cp usage.csv usage.was
sed -i s/12.5/13.5/ usage.csv
expect_fail 1 'begun with another checkpoint or other options \("replicate-hot 409600 usage .*", now "replicate-hot 409600 usage' \
	"${pack[@]}" "${drives[@]:0:4}" --speeds 1,1 --replicate-hot 400K --usage usage.csv "$MODEL" store
expect_fail 1 'other options \("layout stripe", now "layout whole"\)' \
	"${pack[@]}" "${drives[@]}" --speeds 1,1,1 --layout whole "$MODEL" store
expect_fail 1 'other options \("speeds given 1 1 1", now "speeds given 1 1 2"\)' \
	"${pack[@]}" "${drives[@]}" --speeds 1,1,2 --replicate-hot 400K --usage usage.was "$MODEL" store
"${pack[@]}" --restart "${drives[@]}" --speeds 1,1,1 "$MODEL" store >out 2>err
clear_store
nothing_left

section 'dry run'
"${pack[@]}" "${drives[@]}" --dry-run --speeds 2,1,1 --replicas 2 --layout whole "$MODEL" store >out 2>err
grep -Eq '^layout +whole over 3 drives, 2 copies of each expert$' out || die "said: $(cat out)"
grep -Eq '^drive 2 +.*/drive2/store.shard: 1 B/s as given, [0-9.]+ %, [0-9.]+ MiB: [0-9]+ whole experts, 0 parts \([0-9]+ of a further copy\)$' out ||
	die "said: $(cat out)"
nothing_left

section 'what is refused'
refused()
{
	local status=$1 regex=$2
	shift 2
	expect_fail "$status" "$regex" coli-pack "$@" "$MODEL" store
	nothing_left
}
for speeds in '' ',' '1G,' ',1G' 1G,,1G fast,1G -1G,1G 1G,0 0,0 1G,1Gx 1e9,1e9 99999999999999999999,1; do
	refused 2 'is not a speed' "${drives[@]:0:4}" --speeds "$speeds"
done
refused 2 '--speeds names 3 drives, and there are 2' "${drives[@]:0:4}" --speeds 1,1,1
refused 2 '--speeds names 2 drives, and there is 1' --speeds 1,1
refused 2 '2 copies of an expert need 2 drives, and there is 1' --replicas 2
refused 2 '3 copies of an expert need 3 drives, and there are 2' "${drives[@]:0:4}" --replicas 3
refused 2 '3 copies of an expert need 3 drives, and there are 2' "${drives[@]:0:4}" --replicas 2 \
	--replicate-hot 1M --usage usage.csv
for n in 0 17 -1 x 1x 99999999999999999999 ''; do
	refused 2 'replicas' "${drives[@]}" --replicas "$n"
done
refused 2 'striped is not a value for --layout' --layout striped
refused 2 '--replicate-hot needs --usage FILE' "${drives[@]}" --replicate-hot 1G
refused 2 '--replicate-hot much: not a size' "${drives[@]}" --replicate-hot much --usage usage.csv
refused 2 '--usage is of use with --replicate-hot' "${drives[@]}" --usage usage.csv
refused 1 'cannot open nowhere.csv' "${drives[@]}" --speeds 1,1,1 --replicate-hot 1G --usage nowhere.csv
refused 1 'is not an export of usage' "${drives[@]}" --speeds 1,1,1 --replicate-hot 1G \
	--usage "$MODEL/config.json"
refused 1 'drive1 is given twice' --drive drive1 --drive drive0 --drive ../fast/drive1

section 'killed at any moment'
kill_options=(--bits 32 --layout stripe --replicas 2 --speeds "3,2,2" "${drives[@]}")
coli-pack "${kill_options[@]}" "$MODEL" whole >out 2>err
began=${EPOCHREALTIME/[.,]/}
coli-pack "${kill_options[@]}" "$MODEL" store >out 2>err
took=$((${EPOCHREALTIME/[.,]/} - began))
RANDOM=30
kills=0 resumed=0 runs=0
while [ $kills -lt 12 ]; do
	[ $((runs += 1)) -lt 200 ] || die "only $kills of $runs runs could be killed"
	if [ -e store ]; then
		check_store --same whole store
		clear_store
	fi
	coli-pack "${kill_options[@]}" "$MODEL" store >out 2>err &
	pid=$!
	sleep "$(printf '0.%06d' $((took * (RANDOM % 100) / 100 % 1000000)))"
	kill -KILL $pid 2>/dev/null || true
	status=0
	wait $pid 2>/dev/null || status=$?
	case $status in
	137) kills=$((kills + 1)) ;;
	0) ;;
	*) die "ended with $status: $(cat err)" ;;
	esac
	! grep -Eq 'resuming: [1-9][0-9]* of 384 experts are there' err || resumed=$((resumed + 1))
done
[ $resumed -gt 0 ] || die 'no run resumed from whole experts'
if [ ! -e store ]; then
	coli-pack "${kill_options[@]}" "$MODEL" store >out 2>err
fi
check_store --same whole store
check_store --spread store --copies 2
same_experts
rm -rf store whole drive?/*.shard
nothing_left
echo "$kills kills in $runs runs, $resumed of which found whole experts"
