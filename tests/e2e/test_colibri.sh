#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# coli-pack on Colibri's containers: each format against what it means, by an independent reader
# (check_store.py); integers that stay as they are; the engine's tokens; and what is refused.
. "$(dirname "$0")/../lib.sh"

# make [CHECKPOINT] OPTIONS...: in/m is the container, floats/m what it means.
make()
{
	local from=$TEST_DATA/glm-s
	if [ "${1#--}" = "$1" ]; then
		from=$1
		shift
	fi
	rm -rf in floats
	python3 "$ROOT/tests/e2e/make_container.py" "$from" in/m floats/m "$@"
}

# pack STORE OPTIONS...; what was said is in `said`
pack()
{
	coli-pack "${@:2}" in/m "$1" >out 2>said || die "coli-pack ended with $?: $(cat said)"
}

check_store()
{
	python3 "$ROOT/tests/reference/check_store.py" "$@"
}

# run STORE OUT OPTIONS...
run()
{
	expertctl export "$1" "$1.plain" >out
	coli-engine run "$1.plain" --prompt-ids "$PROMPT" -n 24 --logits --threads 1 --json "${@:3}" \
		>"$2" 2>engine.log </dev/null || die "coli-engine: $(tail -n 1 engine.log)"
	rm -rf "$1.plain"
}

# same_values KEY OUT OUT
same_values()
{
	local a b
	a=$(json_get "$2" "$1")
	b=$(json_get "$3" "$1")
	[ ${#a} -gt 20 ] && [ "$a" = "$b" ] || die "other $1: $a and $b"
}

cd "$WORK" || exit
PROMPT=$(python3 "$ROOT/tests/e2e/compare.py" prompts "$TEST_DATA/glm-s/expected.json" | sed -n 2p)

for formats in 'int4-32 int8 int8' 'int4 int4-16 int8' 'int8 fp8 fp8' 'fp8 f32 int4'; do
	read -r experts dense io <<<"$formats"
	section "$experts experts, $dense dense, $io embeddings: as floats"
	make --experts "$experts" --dense "$dense" --io "$io" --files 3
	pack store --bits 32 --dense-bits 32
	[ ! -s said ] || die "said: $(cat said)"
	check_store store floats/m --bits 32 --dense-bits 32
	coli-pack --bits 32 --dense-bits 32 floats/m same >out
	run store one
	run same two
	same_values logits one two
	same_values ids one two
	rm -rf store same
done

section 'integers as they are, scales rounded'
make --experts int4-32 --dense int4 --io int8 --files 2
pack store --group-size 32
grep -Eq '^coli-pack: [0-9]+ matrices keep the integers of the container; their scales are rounded from 32 to 16 bits, by 0.05 % at most' said ||
	die "said: $(cat said)"
[ "$(wc -l <said)" = 1 ] || die "said: $(cat said)"
check_store store floats/m --group 32 --every 5 --coded 0.0005
rm -rf store

section 'scales that 16 bits hold: nothing is lost'
make --experts int4-32 --dense int8 --io int4 --half
for bits in 4 8; do
	pack store$bits --group-size 32 --bits $bits
	check_store store$bits floats/m --group 32 --bits $bits --every 5 --coded 0
done
coli-pack --bits 32 --dense-bits 32 floats/m same >out
run same want
for bits in 4 8; do
	run store$bits got --activations 32
	same_values ids want got
done
rm -rf store? same

section 'quantised a second time'
make --experts int8 --dense int8 --io int8
pack store
grep -q 'quantised a second time, model.layers.1.mlp.experts.0.gate_proj.weight for one: 8 bits in groups of 64 do not fit 4 bits in groups of 64' said ||
	die "said: $(cat said)"
rm -rf store
make --experts int4-32
pack store --dry-run
grep -q '4 bits in groups of 32 do not fit 4 bits in groups of 64' said || die "said: $(cat said)"

section 'fp8, quantised as usual'
make --experts fp8 --dense fp8 --io fp8
pack store
[ ! -s said ] || die "said: $(cat said)"
check_store store floats/m --every 5
rm -rf store

section 'an MTP layer, and one without its indexer'
mtp=$TEST_DATA/oracles/mtp
all=(--experts int4-32 --dense int8 --io int8)
make "$mtp" "${all[@]}"
pack store --group-size 32
! grep -q MTP said || die "said: $(cat said)"
check_store store floats/m --group 32 --every 5 --coded 0.0005
rm -rf store
make "$mtp" "${all[@]}" --drop 'layers\.3\.'
mv floats without
make "$mtp" "${all[@]}" --drop 'layers\.3\..*indexer'
pack store --group-size 32
grep -q 'the container has no tensors of 1 MTP layer, or not the indexer, which Colibri.s converter leaves out; packing without' said ||
	die "said: $(cat said)"
check_store store without/m --group 32 --coded 0.0005
rm -rf store without

section 'what is refused'
refused()
{
	local regex=$1
	shift
	expect_fail 1 "$regex" coli-pack "$@" in/m store
	[ -z "$(find . -maxdepth 1 -name 'store*')" ] || die "left behind: $(ls)"
}
o=model.layers.0.self_attn.o_proj.weight
make --experts int4 --drop indexer
refused 'the container .*/in/m has no indexer \(out-idx-\*.safetensors'
make --dense int4-64
refused 'model.layers.0.mlp.down_proj.weight in .* is int4-grouped, but its 512 bytes of scales are as many for groups of 48 as of 64'
make --dense int8 --nan $o
refused "$o in .* holds a value that is not finite, in row 0" --dense-bits 32
! coli-pack in/m store >out 2>said || die "a scale that is no number was packed"
grep -q "^coli-pack: $o in .* holds a value that is not finite, in row 0" said || die "said: $(cat said)"
make --dense int8 --stamp $o=int4-row
refused "$o in .* has 8192 bytes and 256 bytes of scales, which its stamped format int4-row would not have for the shape \[64, 128\]"
make --dense int8 --stamp $o=int4-rans256-g0
refused "its stamped format int4-rans256-g0 would not have"
make --dense int8 --files 2 --stamp $o=int8-row --stamp $o=int4-row
refused "out-00001.safetensors: colibri.fmt in its metadata has for $o another format than another file"
make --dense int8 --files 2 --stamp $o=int8-row --stamp $o=int8-row
pack store
rm -rf store
make --dense int8
python3 "$ROOT/tests/reference/make_checkpoint.py" set in/m intermediate_size=97
refused "model.layers.0.mlp.gate_proj.weight in .* has 6144 bytes and 384 bytes of scales, which no format of Colibri's has for the shape \[97, 64\]"
make --dense int8
sed -i 's/{"format": "pt"}, /{"colibri.fmt":5},/' in/m/out-00000.safetensors
refused 'out-00000.safetensors: colibri.fmt in its metadata is not the text of a JSON object'
make --dense int8
sed -i 's/"U8"/"I8"/' in/m/out-00000.safetensors
refused "has scales as in Colibri's containers, but is I8, not U8"

section 'int8 or fp8: [1, 64], a row and a block'
w=model.layers.0.self_attn.indexer.weights_proj.weight
make "$TEST_DATA/oracles/fused" --dense int8
pack store --dry-run
make "$TEST_DATA/oracles/fused" --dense int8 --stamp any=fp8-e4m3-b128
refused "$w in .* may be int8-row or fp8-e4m3-b128"
make "$TEST_DATA/oracles/fused" --dense fp8
pack store --bits 32 --dense-bits 32
check_store store floats/m --bits 32 --dense-bits 32
