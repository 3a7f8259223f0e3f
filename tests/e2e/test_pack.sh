#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# coli-pack: every form of checkpoint against an independent reader (check_store.py), what must be
# refused and leaves nothing behind, interruption at any moment, and full disks.
. "$(dirname "$0")/../lib.sh"

make_checkpoint()
{
	python3 "$ROOT/tests/reference/make_checkpoint.py" "$@"
}

check_store()
{
	python3 "$ROOT/tests/reference/check_store.py" "$@"
}

# Nothing beside the folders that were there before.
nothing_left()
{
	local left
	left=$(find "$WORK" -maxdepth 2 \( -name '*.partial' -o -name 'store*' \))
	[ -z "$left" ] || die "left behind: $left"
}

cd "$WORK" || exit

section 'the forms of a checkpoint'
pack_and_check()
{
	local name=$1 making=$2 packing=$3 checking=$4
	# shellcheck disable=SC2086
	make_checkpoint make "$name" $making
	# shellcheck disable=SC2086
	coli-pack $packing "$name" store >out
	grep -q ' experts, ' out || die "$name: no summary"
	# shellcheck disable=SC2086
	check_store store "$name" $checking
	rm -rf store out
}
mkdir drive0 drive1 drive2
pack_and_check bf16-mtp '--mtp --unused' '--drive drive0 --drive drive1 --speeds 1,1' \
	'--ignore layers.2.self_attn.indexer|inv_freq'
rm drive?/*
pack_and_check fp8-fused '--dtype fp8 --fused --files 3 --index --block 32,64' \
	'--bits 8 --dense-bits 16 --group-size 32' '--bits 8 --dense-bits 16 --group 32'
pack_and_check fp8 '--dtype fp8 --files 2 --mtp' '--bits 32 --dense-bits 32' \
	'--bits 32 --dense-bits 32'
pack_and_check f32-tied '--dtype f32 --tied --fused' '--bits 16 --dense-bits 8 --group-size 128' \
	'--bits 16 --dense-bits 8 --group 128'
pack_and_check f16 '--dtype f16' '--drive drive0 --drive drive1 --drive drive2 --speeds 1,1,1' ''
rm drive?/*
pack_and_check shared-last '--unused --set indexer_types=["full","shared","shared","shared"]' '' \
	'--ignore layers.[123].self_attn.indexer|inv_freq'

section 'the trained and the reference checkpoint'
coli-pack --bits 32 --dense-bits 32 "$TEST_DATA/glm-s" store >out
check_store store "$TEST_DATA/glm-s" --bits 32 --dense-bits 32
rm -rf store
coli-pack "$TEST_DATA/tale-moe" store >out
check_store store "$TEST_DATA/tale-moe" --every 50
coli-pack "$TEST_DATA/tale-moe/" again/ >out
check_store --same store again
expect_fail 1 'again exists already' coli-pack "$TEST_DATA/tale-moe" again
rm -rf store again

section 'an MTP layer that is promised and absent'
make_checkpoint make no-mtp --set num_nextn_predict_layers=1
coli-pack no-mtp store >out 2>err
[ "$(cat err)" = 'coli-pack: the checkpoint has no tensors of 1 MTP layer that its config.json promises; packing without' ] ||
	die "said: $(cat err)"
check_store store no-mtp
rm -rf store

section 'dry run'
coli-pack --dry-run --bits 8 bf16-mtp store >out
grep -Eq '^experts +q8/64 +24 of ' out || die "no line of experts in: $(cat out)"
nothing_left

section 'usage'
expect_fail 2 'unrecognized option' coli-pack --frobnicate
expect_fail 2 '5 is not a value for --bits' coli-pack --bits 5 bf16-mtp store
expect_fail 2 'two folders' coli-pack bf16-mtp
coli-pack --help | grep -q '^usage: ' || die 'no help'
coli-pack --version | grep -q '^coli-pack ' || die 'no version'

section 'what is refused'
# refused REGEX [PACK ARGUMENTS]: the checkpoint `broken`, which is removed afterwards
refused()
{
	local regex=$1
	shift
	expect_fail 1 "$regex" coli-pack "$@" broken store
	nothing_left
	rm -rf broken
}
broken()
{
	cp -r f32 broken
	make_checkpoint break "$1" broken "${@:2}"
}
broken_config()
{
	cp -r f32 broken
	make_checkpoint set broken "$@"
}
make_checkpoint make f32 --dtype f32
expert=model.layers.2.mlp.experts.3.up_proj.weight
broken truncated
refused 'truncated: it has [0-9]+ bytes, its header describes [0-9]+'
for bytes in 0 7 8 100 20000; do
	broken truncated "$bytes"
	refused 'truncated|not a safetensors'
done
broken trailing
refused 'last 1 bytes belong to no tensor'
for length in 0 1 0x7fffffffffffffff 0xffffffffffffffff 1000000000; do
	broken header-length "$length"
	refused 'not a safetensors file: its header would have [0-9]+ bytes'
done
broken header-length 50000000
refused 'truncated: it has [0-9]+ bytes, its header alone 50000008'
broken nested
refused 'not a valid JSON object'
broken twice
refused 'a tensor is named twice'
broken missing $expert
refused "has no tensor $expert"
broken overlap
refused 'overlap'
broken gap
refused 'belong to no tensor'
broken outside
refused 'truncated'
broken transposed $expert
refused "$expert .* has the shape \[144, 72\], config.json asks for \[72, 144\]"
broken dtype
refused 'model.norm.weight .* is of type I32; supported: F32'
for entry in '{"dtype":"F32","shape":[144],"data_offsets":[0,575]}' \
	'{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,576]}' \
	'{"dtype":"F32","shape":[-144],"data_offsets":[0,576]}' \
	'{"dtype":"F32","shape":[144],"data_offsets":[576,0]}' \
	'{"dtype":"F32","shape":[144],"data_offsets":[-576,0]}' \
	'{"dtype":"F32","shape":[144],"data_offsets":[0]}' \
	'{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1,144],"data_offsets":[0,576]}' \
	'{"dtype":32,"shape":[144],"data_offsets":[0,576]}' \
	'{"dtype":"F32","shape":144,"data_offsets":[0,576]}' '[]' '7' 'null'; do
	broken entry "$entry"
	refused 'model.norm.weight'
done
for kind in nan infinite huge; do
	broken $kind $expert
	refused "$expert .* holds a value .*, in row 71"
done
broken nan lm_head.weight
refused 'lm_head.weight in .* holds a value that is not finite, in row 95' --dense-bits 32
make_checkpoint make broken --dtype fp8
make_checkpoint break nan broken $expert
refused "$expert .* holds a value that is not finite, in row 71"
make_checkpoint make broken --dtype fp8
make_checkpoint break missing broken ${expert}_scale_inv
refused "$expert .* is F8_E4M3, but there is no ${expert}_scale_inv"
make_checkpoint make broken --dtype fp8 --set 'quantization_config={"weight_block_size":[64,64]}'
refused '_scale_inv .* has the shape'

section 'config.json'
broken_config n_routed_experts=0
refused 'is a dense model \(no routed experts\)'
broken_config n_routed_experts=null model_type='"llama"'
refused '"llama" is a dense model \(no routed experts\)'
broken_config first_k_dense_replace=4
refused 'is a dense model'
broken_config model_type='"phimoe"'
refused 'the architecture "phimoe" is not supported; supported: glm_moe_dsa, '
broken_config hidden_size=null
refused 'hidden_size" is missing'
broken_config hidden_size=-1
refused 'hidden_size" is -1'
broken_config hidden_size=1e9
refused 'hidden_size" is 1000000000'
broken_config num_hidden_layers=2000000000
refused 'num_hidden_layers" is 2000000000'
broken_config num_attention_heads=4096 qk_nope_head_dim=4096
refused 'the query projection would be 16809984 wide'
broken_config num_experts_per_tok=7
refused 'num_experts_per_tok" is 7'
broken_config mlp_bias=true
refused 'mlp_bias" true is not supported'
broken_config attention_bias=true
refused 'has no tensor model.layers.0.self_attn.q_a_proj.bias'
broken_config q_lora_rank=null
refused 'q_a_proj.weight .* has the shape .* asks for .2048, '
broken_config 'indexer_types=["shared","full","full","full"]'
refused 'layer 0 has no indexer'
broken_config 'index_topk_pattern="FXFF"'
refused 'index_topk_pattern'
broken_config 'mlp_layer_types=["dense"]'
refused 'mlp_layer_types" is not a list of 4'
for size in '[128,0]' '[128]' '[128,128,128]'; do
	broken_config "quantization_config={\"weight_block_size\":$size}"
	refused 'weight_block_size is not two numbers'
done
for method in awq gptq bitsandbytes compressed-tensors; do
	broken_config "quantization_config={\"quant_method\":\"$method\"}"
	refused "config.json: weights that are quantised by \"$method\" \(quantization_config\) are not supported"
done
broken_config 'compression_config={"quant_method":"compressed-tensors"}'
refused 'quantised by "compressed-tensors" \(compression_config\)'
broken_config 'eos_token_id="no"'
refused 'eos_token_id'
cp -r f32 broken
printf '\0' >>broken/config.json
refused 'config.json is not valid JSON'
cp -r f32 broken
rm broken/config.json
refused 'cannot open .*config.json: No such file'
cp -r f32 broken
rm broken/tokenizer.json
refused 'cannot open .*tokenizer.json: No such file'
cp -r f32 broken
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:0\n' >broken/tokenizer.json
refused 'tokenizer.json is not a whole JSON object'
cp -r f32 broken
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:0\n' >broken/model.safetensors
refused 'only a Git LFS pointer'
cp -r f32 broken
rm broken/model.safetensors && mkfifo broken/model.safetensors
refused 'not a regular file'

section 'several files'
make_checkpoint make broken --files 3 --index
rm broken/model-00002-of-00003.safetensors
refused 'cannot open .*model-00002-of-00003.safetensors'
make_checkpoint make broken --files 2
cp broken/model-00001-of-00002.safetensors broken/copy.safetensors
refused 'is both in .* and in '
make_checkpoint make broken --index
sed -i 's/"model.norm.weight"/"model.norn.weight"/' broken/model.safetensors.index.json
refused 'says that model.safetensors holds model.norn.weight, which it does not'
make_checkpoint make broken --index
sed -i 's|: "model.safetensors"|: "../../model.safetensors"|' broken/model.safetensors.index.json
refused 'not the name of a .safetensors file'
make_checkpoint make broken --index
truncate -s 100 broken/model.safetensors.index.json
refused 'index.json is not valid JSON'

section 'where to write'
expect_fail 1 'cannot open the folder nowhere for the store' coli-pack bf16-mtp nowhere/store
expect_fail 1 'cannot open the drive folder nowhere' coli-pack --drive nowhere bf16-mtp store
expect_fail 1 'is given twice' coli-pack --drive drive0 --drive ./drive0 bf16-mtp store
expect_fail 1 'cannot be the name of a store' coli-pack bf16-mtp ..
touch drive0/store.shard
expect_fail 1 'drive0/store.shard exists already' coli-pack --drive drive0 bf16-mtp store
mv drive0/store.shard drive0/store.shard.partial
expect_fail 1 'remove it or use --restart' coli-pack --drive drive0 bf16-mtp store
coli-pack --restart --drive drive0 bf16-mtp store >out
check_store store bf16-mtp --ignore 'layers.2.self_attn.indexer|inv_freq'
rm -rf store drive0/store.shard
nothing_left

section 'killed at any moment'
kill_options=(--bits 16 --speeds '1G,1G' --drive drive0 --drive drive1)
coli-pack "${kill_options[@]}" "$TEST_DATA/tale-moe" whole >out
began=${EPOCHREALTIME/[.,]/}
coli-pack "${kill_options[@]}" "$TEST_DATA/tale-moe" store >out
took=$((${EPOCHREALTIME/[.,]/} - began))
RANDOM=20
kills=0 resumed=0 runs=0
while [ $kills -lt 20 ]; do
	[ $((runs += 1)) -lt 200 ] || die "only $kills of $runs runs could be killed"
	if [ -e store ]; then
		check_store --same whole store
		rm -rf store drive?/store.shard
	fi
	coli-pack "${kill_options[@]}" "$TEST_DATA/tale-moe" store >out 2>err &
	pid=$!
	sleep "$(printf '0.%06d' $((took * (RANDOM % 100) / 100 % 1000000)))"
	kill -KILL $pid 2>/dev/null || true
	status=0
	wait $pid 2>/dev/null || status=$?
	case $status in
	137) kills=$((kills + 1)) ;;
	0) ;;
	*) die "ended with $status: $(cat err)" ;;
	esac
	! grep -Eq 'resuming: [1-9][0-9]* of 384 experts are there' err || resumed=$((resumed + 1))
done
[ $resumed -gt 0 ] || die 'no run resumed from whole experts'
if [ ! -e store ]; then
	coli-pack "${kill_options[@]}" "$TEST_DATA/tale-moe" store >out 2>err
fi
check_store --same whole store
rm -rf store drive?/store.shard
nothing_left
echo "$kills kills in $runs runs, $resumed of which found whole experts"

section 'interrupted'
# A folder of a partial pack, whatever the speed of the machine: stopped before it is killed.
partial_pack()
{
	local i
	# bash starts what runs in the background with SIGINT ignored.
	env --default-signal=INT coli-pack "${kill_options[@]}" "$TEST_DATA/tale-moe" store \
		>out 2>err &
	pid=$!
	for ((i = 0; i < 2000; i++)); do
		[ "$(stat -c %s drive0/store.shard.partial 2>/dev/null || echo 0)" -gt 3000000 ] && break
		sleep 0.005
	done
	kill -STOP $pid
}
partial_pack
[ -e store.partial ] || die 'there is no partial store'
expect_fail 1 'another coli-pack is writing it' \
	coli-pack "${kill_options[@]}" "$TEST_DATA/tale-moe" store
kill -INT $pid
kill -CONT $pid
status=0
wait $pid || status=$?
[ $status -eq 1 ] || die "ended with $status after SIGINT"
[ "$(cat err)" = 'coli-pack: interrupted; the same command resumes' ] || die "said: $(cat err)"
expect_fail 1 'begun with .* other options \("bits 16", now "bits 8"\); remove it and .*drive0/store.shard.partial and .*drive1/store.shard.partial, or use --restart' \
	coli-pack --bits 8 --speeds 1G,1G --drive drive0 --drive drive1 "$TEST_DATA/tale-moe" store
expect_fail 1 'begun with another checkpoint' \
	coli-pack "${kill_options[@]}" bf16-mtp store
coli-pack "${kill_options[@]}" "$TEST_DATA/tale-moe" store >out 2>err
grep -Eq 'resuming: [1-9][0-9]* of 384' err || die "said: $(cat err)"
check_store --same whole store
rm -rf store drive?/store.shard

partial_pack
kill -KILL $pid
wait $pid 2>/dev/null || true
# A byte flipped in a record that a killed run has left is found; the rest is done anew.
printf '\377' | dd of=drive0/store.shard.partial bs=1 seek=300000 conv=notrunc status=none
coli-pack "${kill_options[@]}" "$TEST_DATA/tale-moe" store >out 2>err
check_store --same whole store
rm -rf store drive?/store.shard
partial_pack
kill -KILL $pid
wait $pid 2>/dev/null || true
coli-pack --restart --drive drive2 bf16-mtp store >out 2>err
check_store store bf16-mtp --ignore 'layers.2.self_attn.indexer|inv_freq'
rm -rf store drive?/store.shard
nothing_left
mkdir store.partial
touch store.partial/mine
expect_fail 1 'not a pack that can be resumed' coli-pack bf16-mtp store
expect_fail 1 'cannot remove .*store.partial' coli-pack --restart bf16-mtp store
[ -e store.partial/mine ] || die "somebody's file was removed"
rm -r store.partial

section 'killed at the very end'
# What is there between the renames: STORE.partial, some shards with their last name, some without.
partial_pack
kill -KILL $pid
wait $pid 2>/dev/null || true
cp store.partial/pack.state state
coli-pack "${kill_options[@]}" "$TEST_DATA/tale-moe" store >out 2>err
mv store store.partial
cp state store.partial/pack.state
mv drive1/store.shard drive1/store.shard.partial
coli-pack "${kill_options[@]}" "$TEST_DATA/tale-moe" store >out 2>err
grep -q 'resuming: 384 of 384' err || die "said: $(cat err)"
check_store --same whole store
# And behind the last of them.
cp state store/pack.state
expect_fail 1 'store exists already' coli-pack bf16-mtp store
coli-pack "${kill_options[@]}" "$TEST_DATA/tale-moe" store >out
grep -q 'finished by an earlier run' out || die "said: $(cat out)"
check_store --same whole store
rm -rf store drive?/store.shard
nothing_left

section 'full disks'
[ "$(id -u)" -eq 0 ] || skip 'full disks need root, for a small file system (all else passed)'
mkdir small
mount -t tmpfs -o size=8m none small
expect_fail 1 'too little disk: .*small needs [0-9.]+ MiB for this store and has [0-9.]+ MiB free' \
	coli-pack --bits 16 "$TEST_DATA/tale-moe" small/store
[ -z "$(ls small)" ] || die "left behind: $(ls small)"
expect_fail 1 'too little disk: .*small' \
	coli-pack --bits 16 --drive small "$TEST_DATA/tale-moe" store
[ -z "$(ls small)" ] || die "left behind: $(ls small)"
nothing_left
mount -o remount,ro small
expect_fail 1 'cannot create .*small/store.shard.partial: Read-only' \
	coli-pack --drive small bf16-mtp store
nothing_left
umount small
mount -t tmpfs -o size=30m none small
coli-pack --bits 16 --speeds 1G,1G --drive small --drive drive0 "$TEST_DATA/tale-moe" store >out 2>err &
pid=$!
for ((i = 0; i < 2000; i++)); do
	[ "$(stat -c %s small/store.shard.partial 2>/dev/null || echo 0)" -gt 3000000 ] && break
	sleep 0.005
done
kill -STOP $pid
dd if=/dev/zero of=small/filler bs=64k status=none 2>dd.err || true
kill -CONT $pid
status=0
wait $pid || status=$?
[ $status -eq 1 ] || die "ended with $status on a full disk"
grep -Eq 'the disk is full: .*small/store.shard.partial has [0-9.]+ MiB of [0-9.]+ MiB' err ||
	die "said: $(cat err)"
rm small/filler
coli-pack --bits 16 --speeds 1G,1G --drive small --drive drive0 "$TEST_DATA/tale-moe" store >out 2>err
grep -Eq 'resuming: [1-9]' err || die "said: $(cat err)"
check_store --same whole store
umount small
