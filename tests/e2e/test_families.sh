#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Each family of models against the reference implementation: packed at full width, exported, logits
# after each prompt and greedy continuations compared, at 8 bits the logits roughly; the same bits with
# other threads and chunks.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/reference.sh"

families=$TEST_DATA/families

# same_bits DIR PROMPT OPTIONS...: as with one thread and the prompt at once.
same_bits()
{
	local dir=$1 prompt=$2
	shift 2
	ask "$dir" "$WORK/one.json" --prompt-ids "$prompt" -n 6 "$@"
	ask "$dir" "$WORK/other.json" --prompt-ids "$prompt" -n 6 --threads 3 --chunk 7 "$@"
	equal "$WORK/one.json" "$WORK/other.json" "other threads and chunks ($*)"
}

# drafts DIR PROMPT: the MTP layer is there, and what it guesses changes no token.
drafts()
{
	local dir=$1 prompt=$2
	ask "$dir" "$WORK/one.json" --prompt-ids "$prompt" -n 24 --draft off
	ask "$dir" "$WORK/other.json" --prompt-ids "$prompt" -n 24 --draft 3
	[ "$(json_get "$WORK/other.json" draft.drafted)" -gt 0 ] || die 'nothing was drafted'
	equal "$WORK/one.json" "$WORK/other.json" 'with drafts'
}

for checkpoint in "$families"/*/; do
	section "$(basename "$checkpoint")"
	plain_folder "$checkpoint" "$WORK/plain" --bits 32 --dense-bits 32
	read_prompts "$checkpoint/expected.json" 3
	for i in "${!prompts[@]}"; do
		ask "$WORK/plain" "$WORK/out.json" --prompt-ids "${prompts[i]}" -n 16
		check compare both "$checkpoint/expected.json" "$i" "$WORK/out.json" 1e-4
	done
	case $checkpoint in
	*/deepseek_v3/ | */glm4_air/) drafts "$WORK/plain" "${prompts[1]}" ;;
	esac
	same_bits "$WORK/plain" "${prompts[-1]}" --kv bf16
	plain_folder "$checkpoint" "$WORK/plain" --bits 4 --dense-bits 8 --group-size 32
	same_bits "$WORK/plain" "${prompts[-1]}"
	plain_folder "$checkpoint" "$WORK/plain" --bits 8 --dense-bits 8 --group-size 32
	ask "$WORK/plain" "$WORK/out.json" --prompt-ids "${prompts[2]}" -n 1
	# So few keys are chosen that rounding takes others: no bound could be small.
	[[ $checkpoint = */deepseek_v32/ ]] ||
		check compare logits "$checkpoint/expected.json" 2 "$WORK/out.json" 0.25
done

all_same
