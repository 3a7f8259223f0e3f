#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Lookahead on real mounts: the same tokens with and without, guesses that the daemon counts, and what keeps
# from it. And --profile: its parts are the whole.
. "$(dirname "$0")/../lib.sh"
need_root
need_fuse

MNT=$WORK/mnt
PROMPT='The old woman said to the'
coli-pack "$TEST_DATA/tale-moe" "$WORK/one" 2>/dev/null
expertctl export "$WORK/one" "$WORK/plain" 2>/dev/null

# run DIR OUT [options]: the JSON of a greedy run.
run()
{
	local dir=$1 out=$2
	shift 2
	coli-engine run "$dir" -p "$PROMPT" -n 24 --json --logits "$@" >"$out" 2>"$WORK/stderr"
}

# holds FILE EXPRESSION: true of the JSON object o; w is that of the plain folder.
holds()
{
	python3 -c 'import json, sys
o, w = (json.load(open(p)) for p in (sys.argv[1], sys.argv[3]))
a = o["lookahead"]
sys.exit(0 if eval(sys.argv[2]) else 1)' "$1" "$2" "$WORK/plain.json" || {
		cut -c1-1200 "$1" >&2
		die "$1: not true: $2"
	}
}
same='all(o[k] == w[k] for k in ("ids", "text", "logits", "experts_opened", "expert_bytes"))'

section 'a plain folder has no daemon to tell'
run "$WORK/plain" "$WORK/plain.json"
for mode in auto on off; do
	run "$WORK/plain" "$WORK/out.json" --lookahead $mode
	holds "$WORK/out.json" "$same and a['mode'] == '$mode' and a['verdict'] == 'no daemon' and a['guesses'] == 0"
	holds "$WORK/out.json" 'a["loaded"] is None and a["used"] is None and a["wasted"] is None'
done

section 'the same tokens with and without'
for mode in passthrough direct; do
	for memory in 0 2M 4M; do
		mount_store "$WORK/one" "$MNT" --mode $mode --memory $memory
		for ahead in off on auto; do
			run "$MNT" "$WORK/out.json" --lookahead $ahead
			holds "$WORK/out.json" "$same and a['mode'] == '$ahead'"
			case $memory$ahead in
			*off) holds "$WORK/out.json" 'a["verdict"] == "off" and a["guesses"] == 0' ;;
			0*) holds "$WORK/out.json" 'a["verdict"] == "no memory to load ahead into" and a["guesses"] == 0' ;;
			*on) holds "$WORK/out.json" 'a["verdict"] == "on" and a["guesses"] > 24 and a["trials"] == 0' ;;
			*auto) holds "$WORK/out.json" 'a["verdict"] in ("on", "off") and a["trials"] == 1 and a["token_with_s"] > 0 and a["token_without_s"] > 0' ;;
			esac
		done
		case $memory in
		0) [ "$(stat_of "$MNT" prefetch.asked)" = 0 ] || die 'guesses although there is no memory' ;;
		*) [ "$(stat_of "$MNT" prefetch.asked)" -gt 0 ] || die 'the daemon was told nothing' ;;
		esac
		unmount "$MNT"
	done
done

section 'a long prompt, whose experts are more than can be open: the daemon says which lie in memory'
ids=$(coli-engine tokenize "$WORK/plain" <"$TEST_DATA/tale-moe/held-out.txt" | cut -d' ' -f1-300)
coli-engine run "$WORK/plain" --prompt-ids "$ids" -n 8 --json --logits >"$WORK/plain.json"
mount_store "$WORK/one" "$MNT" --memory 4M
for ahead in off on auto; do
	coli-engine run "$MNT" --prompt-ids "$ids" -n 8 --json --logits --lookahead $ahead --chunk 100 >"$WORK/out.json"
	holds "$WORK/out.json" 'o["ids"] == w["ids"] and o["logits"] == w["logits"] and o["hits"] + o["misses"] == o["experts_opened"]'
	[ $ahead = off ] || holds "$WORK/out.json" 'a["guesses"] > 0 and a["loaded"] >= 0'
done
unmount "$MNT"

section 'uses are counted alike, whether each is an open or the daemon is told'
for mode in direct passthrough; do
	coli-pack "$TEST_DATA/tale-moe" "$WORK/$mode" 2>/dev/null # whose catalog knows of no uses
	mount_store "$WORK/$mode" "$MNT" --mode $mode --memory 256M
	coli-engine run "$MNT" --prompt-ids "$ids" -n 50 --json --logits >"$WORK/$mode.json"
	holds "$WORK/$mode.json" 'o["hits"] + o["misses"] == o["experts_opened"]'
	cut -d , -f 1,2,4 "$MNT/.expertfs/usage" >"$WORK/$mode.uses"
	unmount "$MNT"
done
holds "$WORK/passthrough.json" 'o["ids"][:8] == w["ids"]'
cmp "$WORK/direct.uses" "$WORK/passthrough.uses"

section 'a profile'
mount_store "$WORK/one" "$MNT" --memory 4M
coli-engine run "$MNT" --prompt-ids "$ids" -n 50 --draft 2 --json --profile >"$WORK/out.json"
python3 - "$WORK/out.json" <<'EOF_PY'
import json, sys
o = json.load(open(sys.argv[1]))
p = o["profile"]
parts = ("attention", "router", "experts", "wait", "head", "speculation", "other")
for phase, tokens, seconds in (("prompt", 300, 300 / o["prompt_tokens_per_s"]),
                               ("decode", len(o["ids"]) - 1, (len(o["ids"]) - 1) / o["decode_tokens_per_s"])):
    q = p[phase]
    assert q["tokens"] == tokens, q
    assert abs(sum(q[k] for k in parts) - q["seconds"]) < 1e-6, q
    # The clocks are read beside each other; the machine may do something else in between.
    assert abs(q["seconds"] - seconds) < 0.05 * seconds + 0.3, (phase, q["seconds"], seconds)
    assert q["attention"] > 0 and q["router"] > 0 and q["experts"] > 0 and q["wait"] > 0 and q["head"] > 0
    assert q["speculation"] > 0
    assert q["limit"] in ("drive", "memory", "processor") and set(q["share_of"]) == {"drive", "memory", "processor"}
    assert q["bytes_read"] >= 0
    d = q["drafts"]
    assert 0 <= d["wrong_rows"] <= d["rows"] and 0 <= d["check_s"] < q["seconds"] - q["speculation"], q
    assert abs(d["share_of_experts"] * q["experts_opened"] - d["mtp_experts"]["opened"] - d["wrong_experts"]["opened"]) < 0.01, q
    assert abs(d["share_of_bytes"] * q["expert_bytes"] - d["mtp_experts"]["bytes"] - d["wrong_experts"]["bytes"]) < 1, q
d = p["decode"]["drafts"]
assert d["check_s"] > 0 and d["rows"] == o["draft"]["steps"] + o["draft"]["drafted"], d
assert d["wrong_rows"] == o["draft"]["drafted"] - o["draft"]["accepted"], (d, o["draft"])
assert d["wrong_experts"]["opened"] > 0 and d["mtp_experts"]["opened"] > 0, d
assert p["prompt"]["experts_opened"] + p["decode"]["experts_opened"] == o["experts_opened"], p
assert p["prompt"]["expert_bytes"] + p["decode"]["expert_bytes"] == o["expert_bytes"], p
assert p["most_per_s"]["processor"] > 0
# 4 MB of dense tensors lie in a cache: memory is not measured with them.
assert p["most_per_s"]["memory"] == 0
EOF_PY
holds "$WORK/out.json" 'o["ids"][:8] == w["ids"]'
coli-engine run "$MNT" --prompt-ids "$ids" -n 50 --profile >/dev/null 2>"$WORK/stderr"
for line in attention router 'experts, dense layers' 'waiting for experts' 'logits, sampling' speculation 'all else' together; do
	grep -Eq "^  $line +[0-9.]+ +[0-9.]+ % +[0-9.]+ +[0-9.]+ %$" "$WORK/stderr" || die "the profile has no line '$line': $(cat "$WORK/stderr")"
done
coli-engine run "$MNT" --prompt-ids "$ids" -n 20 --draft 2 --profile >/dev/null 2>"$WORK/guesses"
for line in 'passes that check guesses: [0-9.]+ ms a token, [0-9]+ of their [0-9]+ rows wrong' \
	'experts for guesses alone: [0-9]+ \([0-9]+ for the MTP layer, [0-9]+ for wrong rows\), [0-9.]+ GB; [0-9.]+ % of all, [0-9.]+ % of their bytes'; do
	grep -Eq "^decode +$line$" "$WORK/guesses" || die "the profile has no line '$line': $(cat "$WORK/guesses")"
done
coli-engine run "$MNT" --prompt-ids "$ids" -n 20 --draft off --profile >/dev/null 2>"$WORK/guesses"
! grep -E 'check guesses|for guesses' "$WORK/guesses" || die 'a cost of guesses where there were none'
grep -Eq '^decode +nearest to the limit of the (drive|memory|processor);' "$WORK/stderr" || die 'nothing on the limit'
unmount "$MNT"
coli-engine run "$WORK/plain" --prompt-ids "$ids" -n 1 --json --profile >"$WORK/out.json"
holds "$WORK/out.json" 'o["profile"]["prompt"]["bytes_read"] is None and o["profile"]["decode"]["tokens"] == 0'
holds "$WORK/out.json" 'o["profile"]["prompt"]["limit"] == "processor" and o["profile"]["decode"]["limit"] is None'
coli-engine run "$WORK/plain" --prompt-ids "$ids" -n 1 --json >"$WORK/out.json"
holds "$WORK/out.json" '"profile" not in o'

section 'usage'
expect_fail 2 '[-]-lookahead takes auto, on or off, not "maybe"' coli-engine run "$WORK/plain" -p x --lookahead maybe
