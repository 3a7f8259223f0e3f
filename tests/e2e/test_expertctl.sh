#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# expertctl as a user runs it: on folders made by hand, on an exported store, on a live mount and on a
# dead one.
. "$(dirname "$0")/../lib.sh"

# says REGEX FILE: some line of FILE matches.
says()
{
	grep -Eq -- "$1" "$2" || {
		cat "$2"
		die "no line of $2 matches /$1/"
	}
}

section 'the command line'
expertctl --help >"$WORK/help"
says '^usage: expertctl stats' "$WORK/help"
expect_fail 2 '^expertctl: ' expertctl
expect_fail 2 '^expertctl: .* stat;' expertctl stat
expect_fail 2 '^expertctl: .* --jsn ' expertctl stats --jsn
expect_fail 2 '^expertctl: ' expertctl stats a b
expect_fail 2 '^expertctl: .* STORE and a DIR' expertctl export "$WORK"

section 'stats without a mount'
expect_fail 1 "^expertctl: $WORK/none: No such file" expertctl stats "$WORK/none"
expect_fail 1 "^expertctl: no store is mounted on $WORK:" expertctl stats "$WORK"
mkdir -p "$WORK/hand/.expertfs"
stats=$WORK/hand/.expertfs/stats.json
for broken in '' '[]' '{"hits": 1' $'{"a\nb": }'; do
	printf '%s' "$broken" >"$stats"
	expect_fail 1 "^expertctl: $stats is not " expertctl stats "$WORK/hand"
done

section 'stats made by hand'
echo '{}' >"$stats"
expertctl stats "$WORK/hand" >"$WORK/out"
says '^memory +- of -$' "$WORK/out"
says '^errors +-$' "$WORK/out"
cat >"$stats" <<'END'
{"version": 1, "store": "/data/tale\u001b[31m", "mode": "direct", "policy": "lru", "uptime_s": 3723.5, "io": "threads",
 "memory": {"budget": 4294967296, "used": 1610612736, "fixed": "?", "capacity": 1073741824, "slots": 512,
  "hot_store": 2147483648}, "usage": {"recording": false}, "prefetch": {"asked": 5, "loaded": 4, "used": 3, "wasted": 0},
 "experts": {"total": 320, "resident": 64, "pinned": 2}, "hits": 3, "misses": 1, "hit_rate": 0.75,
 "bytes_read": 99999999999999999999999, "load_ms": {"p50": 1, "p95": 2.5}, "errors": -1,
 "drives": [{"path": "/nvme0/tale.shard", "bytes_read": 1048576, "reads": 7, "errors": 0, "gb_per_s": 1.5}, 7]}
END
expertctl stats "$WORK/hand" >"$WORK/out"
says '^store +/data/tale\?\[31m$' "$WORK/out"
says '^mode +direct, drives read with threads$' "$WORK/out"
says '^uptime +1 h 2 min$' "$WORK/out"
says '^memory +1\.50 GiB of 4\.00 GiB$' "$WORK/out"
says '^experts +64 of 320 resident, 2 pinned$' "$WORK/out"
says '^hit rate +75\.0 %: 3 hits, 1 misses$' "$WORK/out"
says '^read +-$' "$WORK/out"
says '^load +p50 1\.00 ms, p95 2\.50 ms, p99 - ms$' "$WORK/out"
says '^errors +-$' "$WORK/out"
says '^ +less than the 2\.00 GiB it may have' "$WORK/out"
says '^usage +not recorded$' "$WORK/out"
says '^prefetch +4 loaded of 5 asked, 3 used, 0 wasted$' "$WORK/out"
says '^ +- - +1\.00 MiB +7 +0 +- +- +1\.50 +- +- +-  /nvme0/tale\.shard$' "$WORK/out"
says '^ +- - +(- +){9} -$' "$WORK/out"
expertctl stats --json "$WORK/hand" | cmp - "$stats"
expect_fail 1 '^expertctl: standard output: ' sh -c "exec expertctl stats '$WORK/hand' >/dev/full"

section 'export'
coli-pack "$TEST_DATA/glm-s" "$WORK/store" >"$WORK/log" 2>&1
expertctl export "$WORK/store" "$WORK/plain" >"$WORK/out" 2>"$WORK/err"
says "^$WORK/plain: [0-9]+ experts" "$WORK/out"
[ ! -s "$WORK/err" ] || die "export said: $(cat "$WORK/err")"
for file in model.json tokenizer.json dense.bin; do
	cmp "$WORK/store/$file" "$WORK/plain/$file"
done
[ "$(ls "$WORK/plain")" = $'dense.bin\nexperts\nmodel.json\ntokenizer.json' ] || die 'other files were exported'
experts=$(sed 's/ experts.*//; s/.* //' "$WORK/out")
[ "$(find "$WORK/plain/experts" -type f | wc -l)" -eq "$experts" ] || die "there are not $experts experts"
expect_fail 1 "^expertctl: $WORK/plain exists already$" expertctl export "$WORK/store" "$WORK/plain"
expect_fail 1 '^expertctl: .*/none: No such file' expertctl export "$WORK/none" "$WORK/x"
expect_fail 1 "^expertctl: $WORK/hand is not a store: " expertctl export "$WORK/hand" "$WORK/x"

section 'export of a damaged store'
cp -r "$WORK/store" "$WORK/damaged"
shard=$(echo "$WORK"/damaged/*.shard)
bytes=$(stat -c %s "$shard")
# Byte 100 of the first payload, which lies behind the shard's and the record's head.
python3 - "$shard" <<'END'
import sys
with open(sys.argv[1], "r+b") as f:
    f.seek(8192 + 100)
    b = f.read(1)
    f.seek(8192 + 100)
    f.write(bytes([b[0] ^ 1]))
END
expect_fail 1 "^expertctl: $shard is damaged: the checksum of expert [0-9]+/[0-9]+ does not hold$" \
	expertctl export "$WORK/damaged" "$WORK/x"
truncate -s $((bytes - 4096)) "$shard"
expect_fail 1 "^expertctl: $shard " expertctl export "$WORK/damaged" "$WORK/x"
rm "$shard"
expect_fail 1 "^expertctl: $shard" expertctl export "$WORK/damaged" "$WORK/x"
[ ! -e "$WORK/x" ] && [ ! -e "$WORK/x.partial" ] || die 'an export that failed left something behind'

section 'export, interrupted'
for wait in 0 0.002 0.004 0.006 0.01 0.02; do
	env --default-signal=INT expertctl export "$WORK/store" "$WORK/y" >"$WORK/out" 2>"$WORK/err" &
	sleep $wait
	kill -INT $! 2>/dev/null || true
	status=0
	wait $! || status=$?
	case $status in
	0) diff -r "$WORK/plain" "$WORK/y" ;;
	# 130: before the handler was there.
	1 | 130) [ ! -e "$WORK/y" ] && [ ! -e "$WORK/y.partial" ] || die 'an interrupted export left something' ;;
	*) die "an interrupted export ended with $status" ;;
	esac
	[ $status -ne 1 ] || says '^expertctl: interrupted' "$WORK/err"
	rm -rf "$WORK/y"
done

if [ "$(id -u)" -eq 0 ]; then
	section 'export without the room'
	mkdir "$WORK/small"
	if mount -t tmpfs -o size=64k none "$WORK/small" 2>/dev/null; then
		expect_fail 1 "^expertctl: $WORK/small/x needs .* and there are .* free$" \
			expertctl export "$WORK/store" "$WORK/small/x"
		[ -z "$(ls -A "$WORK/small")" ] || die 'an export without room left something behind'
	fi
fi

section 'a live mount and a dead one'
need_fuse
mount_store "$WORK/store" "$WORK/mnt"
sha256sum "$WORK"/mnt/experts/*/* >/dev/null
diff -r "$WORK/plain/experts" "$WORK/mnt/experts"
expertctl stats "$WORK/mnt" >"$WORK/out"
says "^store +$WORK/store$" "$WORK/out"
says '^mode +(passthrough|direct), drives read with (io_uring|threads)$' "$WORK/out"
says "^experts +[0-9]+ of $experts resident" "$WORK/out"
says '^hit rate +[0-9.]+ %: [0-9]+ hits, [0-9]+ misses' "$WORK/out"
says '^errors +0$' "$WORK/out"
says "^ .*  $WORK/store/.*\.shard$" "$WORK/out"
expertctl stats "$WORK/mnt" --json >"$WORK/json"
[ "$(json_get "$WORK/json" experts.total)" = "$experts" ] || die 'stats --json is not what the daemon gives'
kill -KILL "$(daemon_pid "$WORK/mnt")"
expect_fail 1 "^expertctl: the daemon of $WORK/mnt has died" expertctl stats "$WORK/mnt"
