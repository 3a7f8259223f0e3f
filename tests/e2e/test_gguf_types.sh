#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A GGUF file of each type of weights, against llama.cpp twice: on the same file, where both round
# activations, and with f32 activations on the same numbers as f32, where nothing is rounded.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/reference.sh"

need_fuse
M=$WORK/mnt
G=$WORK/model.gguf
DATA=$TEST_DATA/gguf-types
mkdir -p "$M"

# type_is TYPE TOLERANCE: of logits that both round; greedy tokens may part where the best two are as
# close as that.
type_is()
{
	local i
	section "$1"
	python3 "$ROOT/tests/e2e/make_typed_gguf.py" "$1" "$TEST_DATA/families/mixtral/tokenizer.json" "$G"
	mount_store "$G" "$M" --memory 64M
	read_prompts "$DATA/$1.json" 3
	for i in "${!prompts[@]}"; do
		ask "$M" "$WORK/out" --prompt-ids "${prompts[i]}" -n 16
		compare logits "$DATA/$1.json" "$i" "$WORK/out" "$2"
		compare greedy "$DATA/$1.json" "$i" "$WORK/out" --close "$2"
		ask "$M" "$WORK/out" --prompt-ids "${prompts[i]}" -n 16 --activations 32
		compare both "$DATA/$1-as-f32.json" "$i" "$WORK/out" 1e-4
	done
	unmount "$M"
	rm -r "$G"*
}

type_is f32 1e-4
type_is f16 5e-3
type_is bf16 3e-2
for t in q8_0 q4_0 q4_1 q5_0 q5_1 q3_k q4_k q5_k q6_k iq4_nl iq4_xs mxfp4 iq1_s iq1_m iq2_xxs iq2_xs iq2_s iq3_xxs iq3_s tq1_0 \
	tq2_0; do
	type_is $t 0.15
done
type_is q2_k 0.3
