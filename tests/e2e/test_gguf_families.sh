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

# ask OUT PROMPT
ask()
{
	coli-engine run "$M" --prompt-ids "$2" -n 16 --logits --threads 1 --json \
		>"$1" 2>"$WORK/engine.log" </dev/null ||
		die "coli-engine ended with $?: $(tail -n 1 "$WORK/engine.log")"
}

# against EXPECTED CASE: MXFP4 is multiplied with 8-bit activations, here and in llama.cpp.
against()
{
	case $1 in
	*mxfp4*)
		check compare logits "$1" "$2" "$WORK/out$2" 0.15
		check compare greedy "$1" "$2" "$WORK/out$2" --close 0.15
		;;
	*) check compare both "$1" "$2" "$WORK/out$2" 1e-4 ;;
	esac
}

# The same numbers from a store: a vector that is a matrix, biases of experts.
packed()
{
	coli-pack "$WORK/$name.gguf" "$WORK/$name.store" >/dev/null
	mount_store "$WORK/$name.store" "$M" --memory 0 --mode direct
	ask "$WORK/packed" "${prompts[1]}"
	for key in ids logits; do
		[ "$(json_get "$WORK/packed" $key)" = "$(json_get "$WORK/out1" $key)" ] ||
			die "$name, packed: other $key"
	done
	unmount "$M"
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
		ask "$WORK/out$i" "${prompts[i]}"
		against "$family/expected.json" "$i"
		# llama.cpp chooses other keys among equals (tests/data/README.md).
		[ "$name" = deepseek32 ] && [ "$i" -gt 1 ] && continue
		[ ! -f "$family/llama.json" ] || against "$family/llama.json" "$i"
	done
	unmount "$M"
	case $name in qwen2moe | gpt-oss*) packed ;; esac
	rm -r "$WORK/$name".*
done

[ $failures -eq 0 ] || die "$failures comparisons differ"
