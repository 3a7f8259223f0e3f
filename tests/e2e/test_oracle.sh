#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The engine against the reference implementation, checkpoint by checkpoint: packed at full width,
# exported to a plain directory, logits after each prompt and greedy continuations compared. Then
# the story model's loss, and stores of fewer bits against the reference on dequantised weights.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/reference.sh"

# check_cases DIR EXPECTED OPTIONS...: logits and greedy ids of every case.
check_cases()
{
	local dir=$1 expected=$2 i
	shift 2
	read_prompts "$expected" 4
	for i in "${!prompts[@]}"; do
		ask "$dir" "$WORK/out.json" --prompt-ids "${prompts[i]}" -n 24 "$@"
		check compare both "$expected" "$i" "$WORK/out.json" 1e-3
	done
}

# check_bits NAME BITS DENSE GROUP: the logits that the reference has on weights quantised so.
check_bits()
{
	local expected=$TEST_DATA/oracles/$1/expected.json i
	section "oracles/$1 at $2/$3 bits, groups of $4"
	plain_folder "$TEST_DATA/oracles/$1" "$WORK/bits" --bits "$2" --dense-bits "$3" --group-size "$4"
	read_prompts "$expected" 4
	for i in "${!prompts[@]}"; do
		ask "$WORK/bits" "$WORK/out.json" --prompt-ids "${prompts[i]}" -n 1 --activations 32
		check compare logits "$expected" "$i" "$WORK/out.json" 1e-3 "$2/$3/$4"
	done
}

for oracle in glm-s oracles/{groups,pattern,fused,fp8,half}; do
	section "$oracle"
	plain_folder "$TEST_DATA/$oracle" "$WORK/plain" --bits 32 --dense-bits 32
	check_cases "$WORK/plain" "$TEST_DATA/$oracle/expected.json"
	section "$oracle, --kv f32"
	check_cases "$WORK/plain" "$TEST_DATA/$oracle/expected.json" --kv f32
done

# bfloat16 checkpoints lose nothing at 16 bits.
for oracle in oracles/{groups,fused}; do
	section "$oracle at 16 bits"
	plain_folder "$TEST_DATA/$oracle" "$WORK/plain" --bits 16 --dense-bits 16
	check_cases "$WORK/plain" "$TEST_DATA/$oracle/expected.json"
done

check_bits groups 4 8 64
check_bits groups 8 8 32
check_bits fp8 4 8 128
check_bits fp8 16 16 64

tale=$TEST_DATA/tale-moe
eval_tale()
{
	coli-engine eval "$WORK/tale" -f "$tale/held-out.txt" --ctx 256 --threads 1 --json "$@" \
		>"$WORK/out.json" 2>"$WORK/engine.log" </dev/null ||
		die "coli-engine eval ended with $?: $(tail -n 1 "$WORK/engine.log")"
}

section 'tale-moe at 16 bits'
plain_folder "$tale" "$WORK/tale" --bits 16 --dense-bits 16
eval_tale
check compare nll "$tale/expected.json" "$WORK/out.json" 0.5
read_prompts "$tale/expected.json" 4 --text
for i in "${!prompts[@]}"; do
	ask "$WORK/tale" "$WORK/out.json" -p "${prompts[i]}" -n 40
	check compare greedy "$tale/expected.json" "$i" "$WORK/out.json" --close 0.01
done

section 'tale-moe at the default bits'
plain_folder "$tale" "$WORK/tale"
eval_tale --activations 32
check compare nll "$tale/expected.json" "$WORK/out.json" 3
# The reference on the dequantised weights: that much is lost in principle, no more in practice.
check compare nll "$TEST_DATA/tale-bits.json" "$WORK/out.json" 0.02 4/8/64
# Activations of 8 bits, the default, add next to nothing; and the same in every instruction set.
eval_tale
check compare nll "$TEST_DATA/tale-bits.json" "$WORK/out.json" 0.1 4/8/64

all_same
