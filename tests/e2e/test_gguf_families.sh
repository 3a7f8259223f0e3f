#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# GGUF files of each architecture, as llama.cpp's converter made them: mounted and packed, against
# the checkpoint's own reference and against llama.cpp on the same weights.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/reference.sh"

need_fuse
M=$WORK/mnt
mkdir -p "$M"

# The same numbers from a store: a vector that is a matrix, biases of experts.
packed()
{
	ask "$M" "$WORK/mounted" --prompt-ids "$1" -n 16
	unmount "$M"
	coli-pack "$WORK/$name.gguf" "$WORK/$name.store" >/dev/null
	mount_store "$WORK/$name.store" "$M" --memory 0 --mode direct
	ask "$M" "$WORK/packed" --prompt-ids "$1" -n 16
	equal "$WORK/packed" "$WORK/mounted" "$name, packed"
}

for family in "$TEST_DATA/gguf-families"/*/; do
	name=$(basename "$family")
	section "$name"
	cp "$family/model.gguf" "$WORK/$name.gguf"
	mount_store "$WORK/$name.gguf" "$M" --memory 64M
	read_prompts "$family/expected.json" 3
	for i in "${!prompts[@]}"; do
		ask "$M" "$WORK/out" --prompt-ids "${prompts[i]}" -n 16 --activations 32
		check compare both "$family/expected.json" "$i" "$WORK/out" 1e-4
		case $name-$i in
		deepseek2-lite-*) ;; # llama.cpp knows it by its 27 layers
		deepseek32-[23]) ;;  # it chooses other keys among equals (tests/data/README.md)
		gpt-oss-mxfp4-*) # both multiply with 8-bit activations
			ask "$M" "$WORK/out" --prompt-ids "${prompts[i]}" -n 16
			check compare logits "$family/llama.json" "$i" "$WORK/out" 0.15
			check compare greedy "$family/llama.json" "$i" "$WORK/out" --close 0.15
			;;
		*) check compare both "$family/llama.json" "$i" "$WORK/out" 1e-4 ;;
		esac
	done
	case $name in qwen2moe | gpt-oss*) packed "${prompts[1]}" ;; esac
	unmount "$M"
	rm -r "$WORK/$name".*
done

all_same
