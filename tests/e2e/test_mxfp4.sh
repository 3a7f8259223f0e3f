#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# gpt-oss as published, its experts in MXFP4: packed, they keep every bit, against the reference and
# against llama.cpp's conversion of the same checkpoint.
. "$(dirname "$0")/../lib.sh"

FAMILY=$TEST_DATA/families/gpt_oss_mxfp4
PAIR=$TEST_DATA/gguf-families/gpt-oss-mxfp4

compare()
{
	echo "   $(python3 "$ROOT/tests/e2e/compare.py" "$@")"
}

prompts_of()
{
	python3 "$ROOT/tests/e2e/compare.py" prompts "$1" >"$WORK/prompts"
	mapfile -t prompts <"$WORK/prompts"
	[ ${#prompts[@]} -ge 3 ] || die "there are only ${#prompts[@]} prompts"
}

# ask DIR OUT PROMPT OPTIONS...
ask()
{
	local dir=$1 out=$2 prompt=$3
	shift 3
	coli-engine run "$dir" --prompt-ids "$prompt" -n 16 --logits --json "$@" \
		>"$out" 2>"$WORK/engine.log" </dev/null ||
		die "coli-engine ended with $?: $(tail -n 1 "$WORK/engine.log")"
}

section 'what is planned'
# An expert has 3 * 64 * 32 weights, 17 bytes for 32 of them; there are 3 layers of 6.
coli-pack --dry-run "$FAMILY" "$WORK/none" >"$WORK/plan"
grep -Eq '^experts +mxfp4 +18 of 3.19 KiB .* 58752$' "$WORK/plan" || die "$(cat "$WORK/plan")"
coli-pack --dry-run --group-size 32 "$FAMILY" "$WORK/none" >"$WORK/plan"
grep -Eq '^experts +mxfp4 ' "$WORK/plan" || die "$(cat "$WORK/plan")"
coli-pack --dry-run --bits 4 --group-size 32 "$FAMILY" "$WORK/none" >"$WORK/plan"
grep -Eq '^experts +q4/32 ' "$WORK/plan" || die "$(cat "$WORK/plan")"

section 'against the reference'
plain_folder "$FAMILY" "$WORK/plain" --dense-bits 32
prompts_of "$FAMILY/expected.json"
for i in "${!prompts[@]}"; do
	ask "$WORK/plain" "$WORK/out" "${prompts[i]}" --activations 32 --threads 1
	compare both "$FAMILY/expected.json" "$i" "$WORK/out" 1e-4
	ask "$WORK/plain" "$WORK/out" "${prompts[i]}"
	compare logits "$FAMILY/expected.json" "$i" "$WORK/out" 0.15
done

section 'the same as the GGUF file'
# That is bf16 where it is not MXFP4.
plain_folder "$PAIR/checkpoint" "$WORK/plain" --dense-bits 16
plain_folder "$PAIR/model.gguf" "$WORK/other"
(cd "$WORK/plain" && find experts -type f -exec sha256sum {} + | sort) >"$WORK/sums"
[ "$(wc -l <"$WORK/sums")" -eq 10 ] || die "$(wc -l <"$WORK/sums") experts"
(cd "$WORK/other" && sha256sum --quiet -c "$WORK/sums") || die 'experts differ'
prompts_of "$PAIR/expected.json"
for i in "${!prompts[@]}"; do
	ask "$WORK/plain" "$WORK/one" "${prompts[i]}"
	ask "$WORK/other" "$WORK/two" "${prompts[i]}"
	[ "$(json_get "$WORK/one" ids)" = "$(json_get "$WORK/two" ids)" ] || die 'other tokens'
	ask "$WORK/plain" "$WORK/one" "${prompts[i]}" --activations 32
	compare both "$PAIR/expected.json" "$i" "$WORK/one" 1e-4
done

section 'a scale that is no number'
cp -r "$FAMILY" "$WORK/broken"
python3 - "$WORK/broken/model.safetensors" <<'EOF'
import json
import struct
import sys

with open(sys.argv[1], "r+b") as f:
    n = struct.unpack("<Q", f.read(8))[0]
    t = json.loads(f.read(n))["model.layers.1.mlp.experts.down_proj_scales"]
    f.seek(8 + n + t["data_offsets"][0] + 7)
    f.write(b"\xff")
EOF
expect_fail 1 'down_proj_blocks in .*broken/model.safetensors holds a value that is not finite, in row 7' \
	coli-pack "$WORK/broken" "$WORK/store"
