#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The report on cache policies. Not a test: it prints tables to be read.
#
#	policies.sh table [TRACE...]   hit rates of all policies at 2, 5, 10, 20, 40, 60 % of the experts,
#	                               as a table for cachepolicy/README.md; default: tests/data/traces
#	policies.sh tune P,P,...       mean hit rates on the first and on the second halves of the traces:
#	                               choose parameters by the first, report the second
#	policies.sh kinds [P,P,...]    made-up traffic: flat, skewed, drifting, repeating, after a prompt
#	policies.sh readers [P,P,...]  several readers at once: parts of each trace, layer by layer by turns
#
# BUILD is where cachesim is (build).
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
BUILD=${BUILD:-$root/build}
cachesim=$BUILD/cachesim
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

[ -x "$cachesim" ] || {
	echo "policies.sh: $cachesim is not there; run make, or set BUILD" >&2
	exit 1
}

# cachesim FILE of CSV -> rows of a table: trace, then for each policy the hit rates in percent.
table()
{
	awk '
	function field(s) { gsub(/^"|"$/, "", s); return s }
	{
		# The policy may be quoted, with commas in it.
		match($0, /^([^",]*|"[^"]*"),/); trace = substr($0, 1, RLENGTH - 1)
		rest = substr($0, RLENGTH + 1)
		match(rest, /^([^",]*|"[^"]*"),/); policy = field(substr(rest, 1, RLENGTH - 1))
		split(substr(rest, RLENGTH + 1), f, ",")
		if (NR == 1) next
		trace = field(trace)
		sub(/.*\//, "", trace)
		key = trace SUBSEP policy
		if (!(key in row)) order[++n] = key
		row[key] = row[key] sprintf(" | %.1f", 100 * f[5])
		sum[key] += 100 * f[5]; points[key]++
	}
	END {
		for (k = 1; k <= n; k++) {
			split(order[k], p, SUBSEP)
			if (p[1] != head) { head = p[1]; printf "\n%s\n\n", head }
			printf "| %s%s | %.1f |\n", p[2], row[order[k]], sum[order[k]] / points[order[k]]
		}
	}' "$1"
}

# The means over the capacities and traces of a CSV file, one line a policy.
means()
{
	table "$1" | awk -F ' [|] ' '/^[|]/ { sub(/^[|] /, "", $1); m = $NF; sub(/ [|]/, "", m)
		if (!($1 in sum)) order[++n] = $1; sum[$1] += m; count[$1]++ }
		END { for (k = 1; k <= n; k++) printf "%-40s %6.2f\n", order[k], sum[order[k]] / count[order[k]] }'
}

case ${1:-} in
table)
	shift
	[ $# -gt 0 ] || set -- "$root"/tests/data/traces/*.{csv,jsonl,trace}
	"$cachesim" --policy all,quota:lfu,belady --csv "$work/csv" "$@" >/dev/null
	table "$work/csv"
	;;
tune)
	for trace in "$root"/tests/data/traces/*.{csv,jsonl,trace}; do
		name=${trace##*/}
		awk -v from=0 -v to=0.5 -f "$here/halves.awk" "$trace" "$trace" >"$work/first.$name"
		awk -v from=0.5 -v to=2 -f "$here/halves.awk" "$trace" "$trace" >"$work/second.$name"
	done
	for half in first second; do
		"$cachesim" --policy "${2:?which policies?}" --csv "$work/$half" "$work/$half".* >/dev/null
		echo "$half halves, mean hit rate in percent"
		means "$work/$half"
	done
	;;
kinds)
	"$cachesim" --policy "${2:-all,belady}" --csv "$work/csv" \
		--synthetic qwen3-30b:zipf=0,repeat=0 \
		--synthetic qwen3-30b:zipf=1,repeat=0,drift=0 \
		--synthetic qwen3-30b:zipf=1,repeat=0,drift=0.05 \
		--synthetic qwen3-30b:zipf=0,repeat=0.5 \
		--synthetic qwen3-30b:prompt=1000 >/dev/null
	table "$work/csv"
	;;
readers)
	for trace in "$root"/tests/data/traces/*.{csv,jsonl,trace}; do
		"$cachesim" --policy lru --capacity 10% --save "$work/own" "$trace" >/dev/null
		for readers in 2 4; do
			# Each begins a share of a round after the one before. Times are of no account.
			awk -v readers=$readers '
				/^expertfs-trace/ { layers = $3 }
				!/^[0-9]/         { print; next }
				{ sub(/^[0-9]+ /, ""); event[n++] = $0 }
				END {
					part = int(n / readers)
					for (k = 0; k < part + layers; k++)
						for (r = 0; r < readers; r++) {
							at = k - int(r * layers / readers)
							if (at >= 0 && at < part)
								print 0, event[r * part + at]
						}
				}' "$work/own" >"$work/$readers readers of ${trace##*/}"
		done
	done
	"$cachesim" --policy "${2:-all,quota:lfu,belady}" --csv "$work/csv" "$work"/*readers* >/dev/null
	table "$work/csv"
	;;
*)
	sed -n '5,12s/^#//p' "$0" >&2
	exit 2
	;;
esac
