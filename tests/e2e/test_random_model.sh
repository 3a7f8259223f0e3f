#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The models of random weights that make bench-engine measures with: the engine reads them, the mount and the plain folder
# give the same tokens, and experts that share a record are served like others.
. "$(dirname "$0")/../lib.sh"
need_fuse

MNT=$WORK/mnt
PATH=$BUILD/bench:$PATH
mkdir "$MNT"
small=(--vocab_size 320 --hidden_size 128 --num_hidden_layers 3 --first_k_dense_replace 1 --num_attention_heads 2
	--q_lora_rank 64 --kv_lora_rank 64 --qk_nope_head_dim 64 --qk_rope_head_dim 64 --v_head_dim 64 --index_n_heads 2
	--index_head_dim 64 --intermediate_size 128 --moe_intermediate_size 64 --n_routed_experts 16 --num_experts_per_tok 2)

tokens()
{
	coli-engine run "$1" --prompt-ids '72 105 300 301' -n 40 --temp 1 --seed 7 --json >"$WORK/run"
	json_get "$WORK/run" ids
}

while read -r preset distinct; do
	section "$preset, $distinct different experts of 32"
	store=$WORK/$preset.$distinct
	make_model --preset $preset "${small[@]}" --distinct $distinct "$store"
	make_model --preset $preset "${small[@]}" --distinct $distinct --plain "$store.plain"
	diff -r -x model.shard -x catalog.db -x shards -x experts "$store" "$store.plain"
	mount_store "$store" "$MNT" --memory 8M
	diff -r "$MNT/experts" "$store.plain/experts"
	plain=$(tokens "$store.plain")
	[ "$(tokens "$MNT")" = "$plain" ] || die 'the mount gives other tokens than the folder'
	[ "$(tr ',' '\n' <<<"$plain" | sort -u | wc -l)" -gt 10 ] || die "hardly any different tokens: $plain"
	unmount "$MNT"
	sum() { sha256sum <"$store.plain/experts/$1"; }
	[ "$(sum 001/003)" != "$(sum 001/004)" ] || die 'two experts of a layer are the same'
	[ $distinct = 32 ] || [ "$(sum 001/003)" = "$(sum 002/003)" ] || die '--distinct 16 wrote more'
	[ $distinct = 16 ] || [ "$(sum 001/003)" != "$(sum 002/003)" ] || die 'all should be different'
done <<<'30b-a3b 32
glm-5.2 16'

section 'what cannot be'
expect_fail 1 'experts are too few' make_model --preset 30b-a3b "${small[@]}" --distinct 15 "$WORK/no"
expect_fail 1 '100 is not a multiple of 64' make_model --preset 30b-a3b "${small[@]}" --hidden_size 100 "$WORK/no"
