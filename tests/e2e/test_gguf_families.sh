#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# GGUF files of each architecture, as llama.cpp's converter made them: mounted and packed, against
# the checkpoint's own reference and against llama.cpp on the same weights.
. "$(dirname "$0")/../lib.sh"

need_fuse
M=$WORK/mnt
mkdir -p "$M"

compare()
{
	python3 "$ROOT/tests/e2e/compare.py" "$@"
}

failures=0
check()
{
	local found
	if found=$("$@" 2>&1); then
		echo "   $found"
	else
		echo "   DIFFERENT: $found"
		failures=$((failures + 1))
	fi
}

# ask OUT PROMPT OPTIONS...
ask()
{
	local out=$1 prompt=$2
	shift 2
	coli-engine run "$M" --prompt-ids "$prompt" -n 16 --logits --threads 1 --json "$@" \
		>"$out" 2>"$WORK/engine.log" </dev/null ||
		die "coli-engine ended with $?: $(tail -n 1 "$WORK/engine.log")"
}

# The same numbers from a store: a vector that is a matrix, biases of experts.
packed()
{
	ask "$WORK/mounted" "$1"
	unmount "$M"
	coli-pack "$WORK/$name.gguf" "$WORK/$name.store" >/dev/null
	mount_store "$WORK/$name.store" "$M" --memory 0 --mode direct
	ask "$WORK/packed" "$1"
	for key in ids logits; do
		[ "$(json_get "$WORK/packed" $key)" = "$(json_get "$WORK/mounted" $key)" ] ||
			die "$name, packed: other $key"
	done
}

for family in "$TEST_DATA/gguf-families"/*/; do
	name=$(basename "$family")
	section "$name"
	cp "$family/model.gguf" "$WORK/$name.gguf"
	mount_store "$WORK/$name.gguf" "$M" --memory 64M
	compare prompts "$family/expected.json" >"$WORK/prompts"
	mapfile -t prompts <"$WORK/prompts"
	[ ${#prompts[@]} -ge 3 ] || die "there are only ${#prompts[@]} prompts"
	for i in "${!prompts[@]}"; do
		ask "$WORK/out" "${prompts[i]}" --activations 32
		check compare both "$family/expected.json" "$i" "$WORK/out" 1e-4
		case $name-$i in
		deepseek2-lite-*) ;; # llama.cpp knows it by its 27 layers
		deepseek32-[23]) ;;  # it chooses other keys among equals (tests/data/README.md)
		gpt-oss-mxfp4-*) # both multiply with 8-bit activations
			ask "$WORK/out" "${prompts[i]}"
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

[ $failures -eq 0 ] || die "$failures comparisons differ"
