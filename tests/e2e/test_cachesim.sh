#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# cachesim as a user runs it: on the real traces, on made-up ones, on broken ones.
. "$(dirname "$0")/../lib.sh"

traces=$TEST_DATA/traces

# says REGEX FILE: some line of FILE matches.
says()
{
	grep -Eq -- "$1" "$2" || {
		cat "$2"
		die "no line of $2 matches /$1/"
	}
}

section 'the command line'
cachesim --help >"$WORK/help"
says '^usage: cachesim' "$WORK/help"
cachesim --version | grep -q '^cachesim '
cachesim --list >"$WORK/list"
for policy in lru lfu lfru clock 2q arc s3fifo sieve wtinylfu lruk hotset quota belady; do
	says "^$policy " "$WORK/list"
done
expect_fail 2 '^cachesim: a trace is needed' cachesim
expect_fail 2 'unrecognized' cachesim --nonsense
expect_fail 2 '^cachesim: --policy: there is no policy fifo' cachesim --policy fifo x
expect_fail 2 '^cachesim: --policy: lru:weight=1 ' cachesim --policy lru:weight=1 x
expect_fail 2 '^cachesim: --policy: there is no policy ;' cachesim --policy lru,,lfu x
expect_fail 2 '^cachesim: --policy: belady:forced=3 ' cachesim --policy belady:forced=3 x
expect_fail 2 '^cachesim: --capacity: 5%% is no size' cachesim --capacity 5%% x
expect_fail 2 '^cachesim: --capacity: 101% is no size' cachesim --capacity 101% x
expect_fail 2 '^cachesim: --capacity: 0% is no size' cachesim --capacity 0% x
expect_fail 2 '^cachesim: --capacity: nan% is no size' cachesim --capacity nan% x
expect_fail 2 '^cachesim: --capacity:  is no size' cachesim --capacity 5%, x
expect_fail 2 '^cachesim: --expert-size' cachesim --expert-size 0 x
expect_fail 2 '^cachesim: --save takes one trace' cachesim --save x a b

section 'files that are no traces'
expect_fail 1 '^cachesim: /nowhere/trace: No such file' cachesim /nowhere/trace
expect_fail 1 "^cachesim: $WORK: cannot be read: Is a directory" cachesim "$WORK"
: >"$WORK/empty"
expect_fail 1 "^cachesim: $WORK/empty: holds no event" cachesim "$WORK/empty"
expect_fail 1 "^cachesim: /dev/zero:1: " cachesim /dev/zero
head -c 100000 /dev/urandom >"$WORK/noise"
expect_fail 1 "^cachesim: $WORK/noise:" cachesim "$WORK/noise"
printf 'layer,expert\n65535,65535\n' >"$WORK/large"
expect_fail 1 "^cachesim: $WORK/large: 65536 layers of 65536 experts are more" cachesim "$WORK/large"
head -c 100000 "$traces/olmoe-1b-7b.jsonl" >"$WORK/cut"
expect_fail 1 "^cachesim: $WORK/cut:[0-9]+: not JSON" cachesim "$WORK/cut"
printf 'expertfs-trace 1 2 2\n1 0 \033[31m\n' >"$WORK/"$'\033evil'
expect_fail 1 '^cachesim: .*\?evil:2: this is no line' cachesim "$WORK/"$'\033evil'

section 'outputs that cannot be written'
expect_fail 1 '^cachesim: /nowhere/x.csv: ' cachesim --policy lru --csv /nowhere/x.csv "$traces/olmoe-1b-7b.jsonl"
if [ -c /dev/full ]; then
	expect_fail 1 '^cachesim: /dev/full: cannot be written' \
		cachesim --policy lru --svg /dev/full "$traces/olmoe-1b-7b.jsonl"
	expect_fail 1 '^cachesim: cannot write to standard output' \
		bash -c 'cachesim --policy lru "$1" >/dev/full' - "$traces/olmoe-1b-7b.jsonl"
fi

section 'the real traces, all policies'
cachesim --csv "$WORK/all.csv" --svg "$WORK/all.svg" "$traces"/*.csv "$traces"/*.jsonl >"$WORK/all.txt"
[ "$(head -n 1 "$WORK/all.csv")" = \
	trace,policy,capacity,events,uses,hits,hit_rate,byte_hit_rate,misses_per_token ]
policies=$(cachesim --list | grep -Ec '^[a-z0-9]+ ')
# --list names belady as well; the models and keys follow under a head of their own.
[ "$(wc -l <"$WORK/all.csv")" -eq $((1 + (policies - 1) * 3 * 6)) ]
# In this trace 48 layers and 128 experts make 2 % of 15,392,047,104 bytes.
says '/qwen3-30b-a3b.csv,lru,[0-9]+,7461,44766,' "$WORK/all.csv"
says '/olmoe-1b-7b.jsonl,lru,51,4784,38272,0,0.000000,0.000000,128.0000$' "$WORK/all.csv"
says '^  \(Belady.s MIN\) +34\.59 ' "$WORK/all.txt"
says '^  capacity 5 % of the experts$' "$WORK/all.txt"
python3 - "$WORK/all.csv" "$WORK/all.svg" "$policies" <<'END'
import csv, sys, xml.dom.minidom
rows = list(csv.DictReader(open(sys.argv[1])))
for r in rows:
    uses, hits = int(r["uses"]), int(r["hits"])
    assert 0 <= hits <= uses, r
    assert abs(float(r["hit_rate"]) - hits / uses) < 1e-6, r
    assert 0 <= float(r["byte_hit_rate"]) <= 1, r
# More room, more hits, for policies that keep the inclusion property.
for t in {r["trace"] for r in rows}:
    for p in ("lru", "lfu"):
        h = [int(r["hits"]) for r in rows if (r["trace"], r["policy"]) == (t, p)]
        assert h == sorted(h), (t, p, h)
svg = xml.dom.minidom.parse(sys.argv[2])
lines = svg.getElementsByTagName("polyline")
assert len(lines) == 3 * int(sys.argv[3]), len(lines)
for line in lines:
    points = [tuple(map(float, p.split(","))) for p in line.getAttribute("points").split()]
    assert len(points) == 6 and points == sorted(points), points
    assert all(0 <= x <= 960 and 0 <= y <= 520 for x, y in points), points
END

section 'labels of capacities that are near each other'
cachesim --policy lru --capacity 10%,60%,11% --svg "$WORK/near.svg" "$traces/olmoe-1b-7b.jsonl" >/dev/null
grep -q '>10 %<' "$WORK/near.svg" && grep -q '>60 %<' "$WORK/near.svg"
if grep -q '>11 %<' "$WORK/near.svg"; then die 'a label is written over another'; fi

section 'one thread and many give the same'
for n in 1 7; do
	OMP_NUM_THREADS=$n cachesim --csv "$WORK/threads.$n" "$traces/gpt-oss-120b.csv" >/dev/null
done
cmp "$WORK/threads.1" "$WORK/threads.7"

section 'saved and read again'
cachesim --policy lru --csv "$WORK/first" --save "$WORK/saved" "$traces/qwen3-30b-a3b.csv" >/dev/null
cachesim --policy lru --csv "$WORK/second" "$WORK/saved" >/dev/null
diff <(cut -d, -f2- "$WORK/first") <(cut -d, -f2- "$WORK/second")
says '^expertfs-trace 1 48 128$' "$WORK/saved"

section 'policies with parameters; sizes'
cachesim --policy lfru:weight=1,half_life=9,lru,quota:lfru:weight=0.5,half_life=9,belady --capacity 1G,10% \
	--csv "$WORK/spec.csv" "$traces/gpt-oss-120b.csv" >"$WORK/spec.txt"
[ "$(wc -l <"$WORK/spec.csv")" -eq 9 ]
says ',"lfru:weight=1,half_life=9",1073741824,' "$WORK/spec.csv"
says '^  capacity 1\.00 GiB, 1\.76 % of the experts$' "$WORK/spec.txt"
# A weight of 1 is LRU, but for what falls off the low end of the counts.
python3 - "$WORK/spec.csv" <<'END'
import csv, sys
rows = list(csv.DictReader(open(sys.argv[1])))
rate = {(r["policy"], r["capacity"]): float(r["hit_rate"]) for r in rows}
for (policy, capacity), v in rate.items():
    if policy == "lru":
        assert abs(rate["lfru:weight=1,half_life=9", capacity] - v) < 0.005, rate
END
expect_fail 1 'must be a percentage' cachesim --capacity 1G "$traces/olmoe-1b-7b.jsonl"
cachesim --policy lru --expert-size 1M --capacity 100M,10% "$traces/olmoe-1b-7b.jsonl" >"$WORK/sized.txt"
says '^  capacity 100 MiB, 9\.77 % of the experts$' "$WORK/sized.txt"
printf 'layer,expert\n0,99\n' >"$WORK/hundred"
cachesim --policy lru --capacity 29%,57%,58% "$WORK/hundred" --csv "$WORK/hundred.csv" >"$WORK/hundred.txt"
[ "$(cut -d, -f3 "$WORK/hundred.csv" | tr '\n' ' ')" = 'capacity 29 57 58 ' ] || die 'percents of a hundred'
says '^  capacity 58 % of the experts$' "$WORK/hundred.txt"
cachesim --policy belady,belady:forced=0,belady:forced=1 --capacity 10% --csv "$WORK/min.csv" \
	"$traces/olmoe-1b-7b.jsonl" >/dev/null
[ "$(sed -n 's/.*,belady,//p' "$WORK/min.csv")" = "$(sed -n 's/.*,belady:forced=0,//p' "$WORK/min.csv")" ]
[ "$(sed -n 's/.*,belady,//p' "$WORK/min.csv")" != "$(sed -n 's/.*,belady:forced=1,//p' "$WORK/min.csv")" ]
cachesim --policy lru --equal-sizes --capacity 10% "$traces/qwen3-30b-a3b.csv" >"$WORK/equal.txt"
says '^  lru +52\.88 ' "$WORK/equal.txt"
cachesim --policy lru --join-prompt --capacity 10% "$traces/gpt-oss-120b.csv" >"$WORK/join.txt"
says ' 2340 events, ' "$WORK/join.txt"

section 'made-up traces'
cachesim --policy lru --capacity 25% --synthetic glm-5.2:tokens=20,prompt=100 --save "$WORK/made" >"$WORK/made.txt"
says '^glm-5\.2:tokens=20,prompt=100: 75 layers of 256 experts, .* 1575 events, ' "$WORK/made.txt"
cachesim --policy lru --capacity 25% "$WORK/made" | sed 1d | diff - <(sed 1d "$WORK/made.txt")
expect_fail 1 '^cachesim: --synthetic: no model nobody; see --list' cachesim --synthetic nobody
expect_fail 1 '^cachesim: --synthetic: zipf is a number from 0 to 10' cachesim --synthetic glm-5.2:zipf=-1
expect_fail 1 '^cachesim: --synthetic: tokens is a whole number' cachesim --synthetic glm-5.2:tokens=1.5
