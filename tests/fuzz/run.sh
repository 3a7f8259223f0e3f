#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs every fuzzer in $BUILD for FUZZ_SECONDS each, or those that are named, from small seeds; fails
# if one finds something. What it found is in $BUILD/found/NAME/; what it learned stays in
# $BUILD/corpus/NAME/ for the next run. A crash becomes a unit test.
set -euo pipefail
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
BUILD=$(realpath "${BUILD:-$ROOT/build/fuzz}")
SECONDS_EACH=${FUZZ_SECONDS:-60}
DATA=$ROOT/tests/data
export PYTHONDONTWRITEBYTECODE=1 # beside the scripts, that is into the tree
work=$(mktemp -d)
export TMPDIR=$work COLI_ENGINE_KERNEL=plain # the kernels that the sanitizers watch
trap 'rm -rf "$work"' EXIT

# seeds NAME FOLDER
seeds()
{
	local checkpoint type
	case $1 in
	model | engine)
		for checkpoint in "$DATA/glm-s" "$DATA"/families/*/; do
			"$BUILD/coli-pack" "$checkpoint" "$work/store" >/dev/null 2>&1
			mv "$work/store/model.json" "$2/$(basename "$checkpoint").json"
			rm -r "$work/store"
		done
		return
		;;
	blocks) # of each type, any bytes
		for type in {0..22}; do
			{ printf '%b' "\\x$(printf %x "$type")" && tail -c 7400 "$DATA/tale-moe/model.safetensors"; } >"$2/$type"
		done
		return
		;;
	gguf)
		python3 "$ROOT/tests/e2e/make_gguf.py" "$DATA/glm-s" "$2/a.gguf" --header-only
		python3 "$ROOT/tests/e2e/make_gguf.py" "$DATA/glm-s" "$2/b.gguf" --header-only --merged --experts q4_0
		python3 "$ROOT/tests/e2e/make_gguf.py" "$DATA/glm-s" "$2/c.gguf" --header-only --apart
		;;
	split)
		python3 "$ROOT/tests/e2e/make_gguf.py" "$DATA/glm-s" "$work/m-00001-of-00003.gguf" --header-only --split 3
		{ printf '\x02' && cat "$work"/m-*.gguf; } >"$2/a"
		;;
	esac
	python3 "$ROOT/tests/fuzz/seeds.py" "$1" "$DATA" "$2"
}

dictionary()
{
	case $1 in
	engine) echo model ;;
	split) echo gguf ;;
	blocks) echo model ;; # which has no words for it; one must be there
	*) echo "$1" ;;
	esac
}

failed=0
[ $# -gt 0 ] || set -- gguf split safetensors checkpoint model engine blocks tokenizer chat session shard trace control status
for name in "$@"; do
	mkdir -p "$BUILD/corpus/$name" "$BUILD/found/$name" "$work/$name"
	seeds "$name" "$work/$name"
	echo "== $name, $SECONDS_EACH s"
	if "$BUILD/fuzz_$name" -max_total_time="$SECONDS_EACH" -max_len=200000 -timeout=120 -rss_limit_mb=2048 \
		-print_final_stats=1 -artifact_prefix="$BUILD/found/$name/" -dict="$ROOT/tests/fuzz/$(dictionary "$name").dict" \
		"$BUILD/corpus/$name" "$work/$name" >"$work/log" 2>&1; then
		grep -E 'number_of_executed_units|cov:' "$work/log" | tail -n 2
	else
		tail -n 40 "$work/log"
		failed=1
	fi
done
exit $failed
