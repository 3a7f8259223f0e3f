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
trap 'rm -rf "$work"' EXIT

seeds_gguf()
{
	python3 "$ROOT/tests/e2e/make_gguf.py" "$DATA/glm-s" "$1/a.gguf" --header-only
	python3 "$ROOT/tests/e2e/make_gguf.py" "$DATA/glm-s" "$1/b.gguf" --header-only --merged --experts q4_0
	python3 "$ROOT/tests/e2e/make_gguf.py" "$DATA/glm-s" "$1/c.gguf" --header-only --apart
}

seeds_safetensors()
{
	python3 - "$1" <<-'END'
		import struct, sys
		for i, header in enumerate([
		        b'{"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},'
		        b'"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},'
		        b'"none":{"dtype":"F4","shape":[0],"data_offsets":[16,16]}}',
		        b'{"__metadata__":{"format":"pt"},"c":{"dtype":"I64","shape":[],"data_offsets":[0,8]},'
		        b'"d":{"dtype":"F8_E4M3","shape":[8],"data_offsets":[8,16]}}  ']):
		    with open(f"{sys.argv[1]}/{i}", "wb") as f:
		        f.write(struct.pack("<Q", len(header)) + header + bytes(16))
	END
}

seeds_model()
{
	"$BUILD/coli-pack" "$DATA/glm-s" "$work/store" >/dev/null 2>&1
	cp "$work/store/model.json" "$1"
}

seeds_tokenizer()
{
	python3 - "$DATA/glm-s/tokenizer.json" "$1/a.json" <<-'END'
		import json, sys
		with open(sys.argv[1], encoding="utf-8") as f:
		    t = json.load(f)
		keep = {k: v for k, v in t["model"]["vocab"].items() if v < 300}
		of = lambda m: m.split(" ") if isinstance(m, str) else m
		t["model"]["merges"] = [m for m in t["model"]["merges"] if all(p in keep for p in [*of(m), "".join(of(m))])]
		t["model"]["vocab"] = keep
		with open(sys.argv[2], "w", encoding="utf-8") as f:
		    json.dump(t, f)
	END
}

failed=0
[ $# -gt 0 ] || set -- gguf safetensors model tokenizer
for name in "$@"; do
	mkdir -p "$BUILD/corpus/$name" "$BUILD/found/$name" "$work/$name"
	"seeds_$name" "$work/$name"
	echo "== $name, $SECONDS_EACH s"
	if "$BUILD/fuzz_$name" -max_total_time="$SECONDS_EACH" -max_len=200000 -timeout=120 -rss_limit_mb=2048 \
		-print_final_stats=1 -artifact_prefix="$BUILD/found/$name/" -dict="$ROOT/tests/fuzz/$name.dict" \
		"$BUILD/corpus/$name" "$work/$name" >"$work/log" 2>&1; then
		grep -E 'number_of_executed_units|cov:' "$work/log" | tail -n 2
	else
		tail -n 40 "$work/log"
		failed=1
	fi
done
exit $failed
