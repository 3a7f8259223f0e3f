#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The first property: the same prompt gives the same tokens through any mount, in passthrough and
# in direct mode, with any memory from nothing to everything, on several drives, and on a plain
# folder. And the faults of a run: each ends with one sentence and a status, never a wrong token.
. "$(dirname "$0")/../lib.sh"
need_root
need_fuse

MNT=$WORK/mnt
PROMPT='The old woman said to the'
N=24
mkdir "$MNT"
coli-pack "$TEST_DATA/tale-moe" "$WORK/one" 2>/dev/null
mkdir "$WORK/a" "$WORK/b" "$WORK/c"
coli-pack --drive "$WORK/a" --drive "$WORK/b" --drive "$WORK/c" "$TEST_DATA/tale-moe" "$WORK/three" 2>/dev/null
expertctl export "$WORK/one" "$WORK/plain" 2>/dev/null

# run DIR OUT [options]: the JSON of a greedy run.
run()
{
	local dir=$1 out=$2
	shift 2
	coli-engine run "$dir" -p "$PROMPT" -n $N --draft 2 --json --logits "$@" >"$out" 2>"$WORK/stderr"
}

# same OUT MODE: ids, text and every bit of the logits as on the plain folder; and the mode that was.
same()
{
	python3 - "$WORK/plain.json" "$1" "$2" <<'EOF'
import json, sys
want, got = (json.load(open(p)) for p in sys.argv[1:3])
for key in ("prompt_ids", "ids", "text", "logits", "stop", "experts_opened", "expert_bytes"):
    assert want[key] == got[key], (key, want[key], got[key])
assert got["mode"] == sys.argv[3], got["mode"]
assert len(got["ids"]) == 24
if got["mode"] == "plain":
    assert got["hits"] is None and got["misses"] is None
else:
    assert got["hits"] + got["misses"] == got["experts_opened"], got
EOF
}

section 'a plain folder'
run "$WORK/plain" "$WORK/plain.json"
same "$WORK/plain.json" plain

section 'mounts: mode, memory, drives'
for store in one three; do
	for mode in passthrough direct; do
		for memory in 0 2M 4M 1T; do # 1T: more than there is, but the store takes little of it
			mount_store "$WORK/$store" "$MNT" --mode $mode --memory $memory
			for _ in first second; do
				run "$MNT" "$WORK/out.json"
				same "$WORK/out.json" $mode
			done
			[ "$(stat_of "$MNT" mode)" = $mode ] || die "the daemon is not in mode $mode"
			hits=$(json_get "$WORK/out.json" hits)
			case $memory in
			0) [ "$hits" = 0 ] || die "$hits hits without memory" ;;
			1T) [ "$(json_get "$WORK/out.json" misses)" = 0 ] || die 'misses with all in memory' ;;
			esac
			used=$(stat_of "$MNT" memory.used) budget=$(stat_of "$MNT" memory.budget)
			[ $memory = 0 ] || [ "$used" -le "$budget" ] || die "$used of $budget bytes used"
			unmount "$MNT"
		done
	done
done

section 'any policy'
for policy in lru lfru:weight=0.3 s3fifo quota:lru expert; do
	mount_store "$WORK/one" "$MNT" --policy $policy --memory 4M
	run "$MNT" "$WORK/out.json"
	same "$WORK/out.json" passthrough
	[ "$(stat_of "$MNT" policy)" = $policy ] || die "the policy is not $policy"
	[ "$(stat_of "$MNT" evictions)" -gt 0 ] || die 'nothing was evicted'
	unmount "$MNT"
done

section 'one daemon, several engines at once'
mount_store "$WORK/three" "$MNT" --memory 4M
for i in 1 2 3; do run "$MNT" "$WORK/at-once-$i.json" & done
for i in 1 2 3; do wait -n || die 'an engine failed beside the others'; done
# The daemon's hits are those of all three.
for i in 1 2 3; do
	python3 - "$WORK/plain.json" "$WORK/at-once-$i.json" <<'EOF'
import json, sys
want, got = (json.load(open(p)) for p in sys.argv[1:3])
for key in ("ids", "text", "logits", "stop"):
    assert want[key] == got[key], key
EOF
done
unmount "$MNT"

section 'sampled with a seed, and with any number of threads'
mount_store "$WORK/one" "$MNT" --memory 4M
run "$MNT" "$WORK/s1.json" --temp 0.8 --top-p 0.95 --seed 7 --threads 1
run "$MNT" "$WORK/s2.json" --temp 0.8 --top-p 0.95 --seed 7 --threads 3
run "$WORK/plain" "$WORK/s3.json" --temp 0.8 --top-p 0.95 --seed 7
for i in 1 2 3; do
	[ "$(json_get "$WORK/s$i.json" ids)" = "$(json_get "$WORK/s1.json" ids)" ] || die "run $i differs"
done
run "$MNT" "$WORK/s4.json" --temp 0.8 --top-p 0.95 --seed 8
[ "$(json_get "$WORK/s4.json" ids)" != "$(json_get "$WORK/s1.json" ids)" ] || die 'the seed does nothing'
unmount "$MNT"

section 'a context that grows past the length up to which ties follow the reference'
# glm-s keeps 12 keys and ties often. 506 tokens and 12 more, against 515 at once: the same.
coli-pack --bits 32 --dense-bits 32 "$TEST_DATA/glm-s" "$WORK/ties" 2>/dev/null
mount_store "$WORK/ties" "$MNT" --memory 64M
prompt=$(python3 -c 'print(*(10 + 7919 * i * i % 2000 for i in range(506)))')
coli-engine run "$MNT" --prompt-ids "$prompt" -n 12 --json >"$WORK/g1.json" 2>/dev/null
more=$(python3 -c 'import json, sys; print(*json.load(open(sys.argv[1]))["ids"][:9])' "$WORK/g1.json")
coli-engine run "$MNT" --prompt-ids "$prompt $more" -n 3 --json >"$WORK/g2.json" 2>/dev/null
python3 - "$WORK/g1.json" "$WORK/g2.json" <<'EOF'
import json, sys
grown, whole = (json.load(open(p))["ids"] for p in sys.argv[1:])
assert len(grown) == 12 and grown[9:] == whole, (grown, whole)
EOF
unmount "$MNT"

section 'nothing is mounted, a store instead of a mount, a wrong folder'
expect_fail 1 "$MNT.*(model.json|mounted)" coli-engine run "$MNT" -p x
expect_fail 1 "$WORK/nowhere" coli-engine run "$WORK/nowhere" -p x
expect_fail 1 "$WORK/one" coli-engine run "$WORK/one" -p x
cp -r "$WORK/plain" "$WORK/wrong"
echo '{"format": "something else"}' >"$WORK/wrong/model.json"
expect_fail 1 "model.json" coli-engine run "$WORK/wrong" -p x

section 'a flipped byte in a record: the run ends, it does not go on with wrong numbers'
cp -r "$WORK/one" "$WORK/bad"
python3 - "$WORK/bad/one.shard" <<'EOF'
import os, sys
# One byte in the payload of every record.
with open(sys.argv[1], "r+b") as f:
    size = os.path.getsize(sys.argv[1])
    for at in range(4096, size, 4096):
        f.seek(at)
        if f.read(8) == b"EXFSREC1":
            f.seek(at + 4096 + 1000)
            byte = f.read(1)[0]
            f.seek(-1, 1)
            f.write(bytes([byte ^ 1]))
EOF
for memory in 0 100M; do
	mount_store "$WORK/bad" "$MNT" --memory $memory
	# Progress and statistics aside, exactly one line that says so.
	expect_fail 1 'experts/[0-9]+/[0-9]+.*(EIO|damaged|Input/output)' \
		bash -c 'coli-engine run "$1" -p x -n 4 2>"$2"; s=$?; grep -E "^coli-engine: .*experts/" "$2" >&2; exit $s' bash "$MNT" "$WORK/stderr"
	[ "$(stat_of "$MNT" errors)" -gt 0 ] || die 'the daemon counted no error'
	unmount "$MNT"
done

section 'the daemon killed while the engine runs'
for mode in passthrough direct; do
	mount_store "$WORK/one" "$MNT" --mode $mode --memory 1200K
	coli-engine run "$MNT" -p "$PROMPT" -n 2000 --temp 1 --seed 1 >"$WORK/text" 2>"$WORK/stderr" &
	engine=$!
	for _ in $(seq 100); do
		[ -s "$WORK/text" ] && break
		sleep 0.1
	done
	[ -s "$WORK/text" ] || die 'no text came'
	kill -KILL "$(daemon_pid "$MNT")"
	status=0
	wait $engine || status=$?
	[ $status = 1 ] || die "the engine ended with $status"
	[ "$(grep -c '^coli-engine: .*daemon' "$WORK/stderr")" = 1 ] || {
		cat "$WORK/stderr" >&2
		die 'the sentence is missing'
	}
	expect_fail 1 'daemon' coli-engine run "$MNT" -p x
	umount -l "$MNT"
done

section 'too little memory for the dense part'
coli-pack --dense-bits 32 "$TEST_DATA/tale-moe" "$WORK/wide" 2>/dev/null
expertctl export "$WORK/wide" "$WORK/wide.plain" 2>/dev/null
group=/sys/fs/cgroup/memory/expertfs-test-$$
if [ -n "${SANITIZE:-}" ]; then
	echo "left out: a sanitizer takes more memory than that itself"
elif mkdir "$group" 2>/dev/null; then
	trap 'rmdir "$group" 2>/dev/null; lib_leave $?' EXIT
	echo 12M >"$group/memory.limit_in_bytes"
	expect_fail 1 'dense .*available|available.*dense' bash -c 'echo $$ >"$1/cgroup.procs"; exec coli-engine run "$2" -p x' bash \
		"$group" "$WORK/wide.plain"
else
	# cgroup v2, or none: the limit of the address space says the same.
	expect_fail 1 'dense .*available|available.*dense' bash -c 'ulimit -v 60000; exec coli-engine run "$1" -p x' bash "$WORK/wide.plain"
fi
