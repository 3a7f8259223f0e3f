#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A GGUF file of each type of weights, against llama.cpp twice: on the same file, where it rounds
# activations, and on the same numbers as f32, where it does not.
. "$(dirname "$0")/../lib.sh"

need_fuse
M=$WORK/mnt
G=$WORK/model.gguf
DATA=$TEST_DATA/gguf-types
mkdir -p "$M"

compare()
{
	python3 "$ROOT/tests/e2e/compare.py" "$@"
}

# against EXPECTED CASE TOLERANCE: greedy tokens may part where two logits are as close as that.
against()
{
	echo "   $(compare logits "$1" "$2" "$WORK/out" "$3")"
	echo "   $(compare greedy "$1" "$2" "$WORK/out" --close "$3")"
}

# type_is TYPE TOLERANCE EXACT: against llama.cpp's own products, and against exact ones. The second is
# small where this engine multiplies with f32, else what its 8-bit activations explain.
type_is()
{
	local i
	section "$1"
	python3 "$ROOT/tests/e2e/make_typed_gguf.py" "$1" "$TEST_DATA/families/mixtral/tokenizer.json" "$G"
	mount_store "$G" "$M" --memory 64M
	compare prompts "$DATA/$1.json" >"$WORK/prompts"
	mapfile -t prompts <"$WORK/prompts"
	[ ${#prompts[@]} -eq 3 ] || die "${#prompts[@]} prompts"
	for i in 0 1 2; do
		coli-engine run "$M" --prompt-ids "${prompts[i]}" -n 16 --logits --threads 1 --json \
			>"$WORK/out" 2>/dev/null </dev/null
		against "$DATA/$1.json" "$i" "$2"
		against "$DATA/$1-as-f32.json" "$i" "$3"
	done
	unmount "$M"
	rm -r "$G"*
}

type_is f32 1e-4 1e-4
type_is f16 5e-3 1e-4
type_is bf16 3e-2 1e-4
for t in q8_0 q4_0 q4_1 q5_0 q5_1 q3_k q4_k q5_k q6_k iq4_nl iq4_xs mxfp4; do
	type_is $t 0.15 0.15
done
type_is q2_k 0.3 1e-4
