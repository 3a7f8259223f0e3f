#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# GGUF files mounted as they are: the engine's logits and greedy continuations against the reference,
# with one file and several, tensors apart and merged, in both serving modes; the same tokens with
# any memory and on a plain folder of the same files; usage beside the file or where --state says;
# the chat template; and what cannot be mounted.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/reference.sh"

need_fuse
G=$WORK/g
M=$WORK/mnt
EXPECTED=$TEST_DATA/glm-s/expected.json
mkdir -p "$G" "$M"

make_gguf()
{
	python3 "$ROOT/tests/e2e/make_gguf.py" "$TEST_DATA/glm-s" "$@"
}

read_prompts "$EXPECTED" 4

# agrees DIR CASE...: logits and continuation of the reference.
agrees()
{
	local dir=$1 i
	shift
	for i in "$@"; do
		ask "$dir" "$WORK/out" --prompt-ids "${prompts[i]}" -n 24
		compare both "$EXPECTED" "$i" "$WORK/out" 1e-5
	done
}

section "one file, experts in memory"
make_gguf "$G/one.gguf"
mount_store "$G/one.gguf" "$M" --memory 64M
[ "$(stat -c %s "$M/dense.bin")" = "$(stat -c %s "$G/one.gguf")" ] || die "dense.bin is not the file"
cmp "$M/dense.bin" "$G/one.gguf"
agrees "$M" 0 1 2 3
[ "$(stat_of "$M" experts.total)" = 32 ] || die "$(stat_of "$M" experts.total) experts"
TEXT='Once upon a time, 1234 <|user|> it was é'
coli-engine tokenize "$M" <<<"$TEXT" >"$WORK/ids"
(echo 'add /tmp' >"$M/.expertfs/drives") 2>/dev/null && die "a GGUF file was to be spread over drives"
(
	mkdir -p "$WORK/plain/experts"
	cp "$M/model.json" "$M/tokenizer.json" "$M/dense.bin" "$WORK/plain"
	cp -r "$M/experts/." "$WORK/plain/experts"
)
unmount "$M"
cp "$TEST_DATA/glm-s/tokenizer.json" "$WORK/plain/"
coli-engine tokenize "$WORK/plain" <<<"$TEXT" | cmp - "$WORK/ids"

section "a plain folder of its files"
agrees "$WORK/plain" 3

section "nothing in memory, and direct mode: the same bytes"
for options in "--memory 0" "--memory 64M --mode direct" "--memory 0 --mode direct" "--memory 64M --io threads"; do
	# shellcheck disable=SC2086 # options are several words
	mount_store "$G/one.gguf" "$M" $options
	diff -r "$M/experts" "$WORK/plain/experts"
	agrees "$M" 1
	unmount "$M"
done

section "usage is kept beside the file"
[ -f "$G/one.gguf.expertfs/catalog.db" ] || die "no catalog beside the file"
mount_store "$G/one.gguf" "$M" --memory 64M
[ "$(stat_of "$M" usage.known)" = 32 ] || die "usage of $(stat_of "$M" usage.known) experts is known"
unmount "$M"
mkdir "$WORK/state"
mount_store "$G/one.gguf" "$M" --memory 64M --state "$WORK/state"
[ "$(stat_of "$M" usage.known)" = 0 ] || die "--state is not another place"
[ "$(stat_of "$M" store)" = "$WORK/state" ] || die "the store is $(stat_of "$M" store)"
unmount "$M"

expect_fail 1 'one.gguf.expertfs has what was learned of a GGUF file' expertfs "$G/one.gguf.expertfs" "$M"

mkdir "$WORK/fast"
if mount -t tmpfs -o size=8m none "$WORK/fast"; then
	section "a hot drive: the same bytes"
	mount_store "$G/one.gguf" "$M" --memory 1500K --hot-dir "$WORK/fast" --hot-dir-size 2M
	for _ in 1 2 3 4 5; do
		diff -r "$M/experts" "$WORK/plain/experts"
	done
	unmount "$M"
	umount "$WORK/fast"
fi

section "three files, gate and up merged"
make_gguf "$G/s-00001-of-00003.gguf" --split 3 --merged
mount_store "$G/s-00001-of-00003.gguf" "$M" --memory 64M
cmp "$M/dense-00003.bin" "$G/s-00003-of-00003.gguf"
agrees "$M" 1 3
[ "$(stat_of "$M" drives.2.path)" = "$G/s-00003-of-00003.gguf" ] || die "the third drive is another"
unmount "$M"
mount_store "$G/s-00001-of-00003.gguf" "$M" --memory 0 --mode direct
agrees "$M" 2
unmount "$M"

section "each expert's matrices by themselves"
make_gguf "$G/apart.gguf" --apart
mount_store "$G/apart.gguf" "$M" --memory 64M
check "$M" 1 3
unmount "$M"
mount_store "$G/apart.gguf" "$M" --memory 0 --mode direct
check "$M" 2
unmount "$M"
coli-pack "$G/apart.gguf" "$WORK/apart" >/dev/null
expertctl export "$WORK/apart" "$WORK/apart.plain" >/dev/null
coli-pack "$G/one.gguf" "$WORK/stacked" >/dev/null
expertctl export "$WORK/stacked" "$WORK/stacked.plain" >/dev/null
diff -r "$WORK/apart.plain/experts" "$WORK/stacked.plain/experts"

section "kv_b in one"
make_gguf "$G/old.gguf" --whole-kv-b
mount_store "$G/old.gguf" "$M" --memory 64M
agrees "$M" 2
unmount "$M"

section "quantised experts: the same tokens wherever they are"
for type in f16 q8_0 q4_0; do
	make_gguf "$G/$type.gguf" --experts $type
	mount_store "$G/$type.gguf" "$M" --memory 64M
	ask "$M" "$WORK/first" --prompt-ids "${prompts[2]}" -n 1
	unmount "$M"
	mount_store "$G/$type.gguf" "$M" --memory 0 --mode direct
	ask "$M" "$WORK/second" --prompt-ids "${prompts[2]}" -n 1
	unmount "$M"
	equal "$WORK/first" "$WORK/second" "$type"
	cp "$WORK/first" "$WORK/$type"
done
compare logits "$EXPECTED" 2 "$WORK/f16" 2e-3

section "packed: the same numbers, on two drives"
mkdir "$WORK/d0" "$WORK/d1"
make_gguf "$G/p-00001-of-00002.gguf" --split 2 --merged --experts q8_0
coli-pack --drive "$WORK/d0" --drive "$WORK/d1" --speeds 1G,2G "$G/p-00001-of-00002.gguf" "$WORK/store" >/dev/null
mount_store "$WORK/store" "$M" --memory 0
ask "$M" "$WORK/out" --prompt-ids "${prompts[2]}" -n 1
equal "$WORK/out" "$WORK/q8_0" packed
unmount "$M"
coli-pack "$G/one.gguf" "$WORK/f32" >/dev/null
expertctl export "$WORK/f32" "$WORK/f32.plain" >/dev/null
agrees "$WORK/f32.plain" 3
expect_fail 1 'one.gguf is a GGUF file, whose tensors are copied as they are: no --bits' coli-pack --bits 8 "$G/one.gguf" "$WORK/no"

section "the chat template: of the mount and of the store as of the checkpoint"
cp -r "$TEST_DATA/glm-s" "$WORK/checkpoint"
python3 -c 'import json, sys
print(next(t["template"] for t in json.load(open(sys.argv[1]))["templates"] if t["name"] == "glm-5"), end="")' \
	"$TEST_DATA/chat/golden.json" >"$WORK/checkpoint/chat_template.jinja"
coli-pack "$WORK/checkpoint" "$WORK/of-checkpoint" >/dev/null
make_gguf "$G/chat.gguf" --template "$WORK/checkpoint/chat_template.jinja"
coli-pack "$G/chat.gguf" "$WORK/of-gguf" >/dev/null
mount_store "$G/chat.gguf" "$M" --memory 64M
hello='[{"role": "user", "content": "Hello <|user|>"}]'
coli-engine tokenize "$WORK/of-checkpoint" --chat <<<"$hello" >"$WORK/ids"
[ "$(coli-engine tokenize "$M" --decode <"$WORK/ids")" = '[gMASK]<sop><|system|>Reasoning Effort: Max<|user|>Hello <|user|><|assistant|><think>' ] ||
	die "another text"
for where in "$M" "$WORK/of-gguf"; do
	coli-engine tokenize "$where" --chat <<<"$hello" | cmp - "$WORK/ids"
done
unmount "$M"

section "a chat template that is none hinders only chat"
head -c 1048577 /dev/zero | tr '\0' x >"$WORK/long"
make_gguf "$G/chat.gguf" --template "$WORK/long"
mount_store "$G/chat.gguf" "$M" --memory 64M
check "$M" 1
cat >"$WORK/say-hello" <<'EOF'
#!/bin/bash
echo '[{"role": "user", "content": "Hello <|user|>"}]' | coli-engine tokenize "$@"
EOF
chmod +x "$WORK/say-hello"
expect_fail 1 "model.json: the model's chat template cannot be used: tokenizer.chat_template has 1048577 bytes, more than 1048576; .*--chat-format" \
	"$WORK/say-hello" "$M" --chat
"$WORK/say-hello" "$M" --chat --chat-format glm-5 | cmp - "$WORK/ids"
unmount "$M"

section "--state takes no folder that is somebody else's"
(cd "$WORK/store" && md5sum -- *) >"$WORK/before"
expect_fail 1 'store/dense.bin is not a GGUF file.s: .* another folder' expertfs "$G/one.gguf" "$M" --state "$WORK/store"
(cd "$WORK/store" && md5sum -- *) | cmp - "$WORK/before"
mkdir "$WORK/other"
echo mine >"$WORK/other/model.json"
expect_fail 1 'other/model.json is not a GGUF file.s' expertfs "$G/one.gguf" "$M" --state "$WORK/other"
[ "$(ls "$WORK/other")" = model.json ] && [ "$(cat "$WORK/other/model.json")" = mine ] || die "other/ has changed"

section "--state takes no folder that another model is served from"
mount_store "$G/one.gguf" "$M" --memory 64M --state "$WORK/state"
(cd "$WORK/state" && readlink dense.bin && md5sum model.json tokenizer.json) >"$WORK/before"
expect_fail 1 'state is in use: it is mounted' expertfs "$G/q8_0.gguf" "$WORK/fast" --state "$WORK/state"
(cd "$WORK/state" && readlink dense.bin && md5sum model.json tokenizer.json) | cmp - "$WORK/before"
unmount "$M"
mount_store "$G/q8_0.gguf" "$M" --memory 64M --state "$WORK/state"
ask "$M" "$WORK/out" --prompt-ids "${prompts[2]}" -n 1
equal "$WORK/out" "$WORK/q8_0" 'state of another model'
unmount "$M"

section "a file that is written to while it is mounted: what lies in memory stays, the rest is no expert any more"
cp "$G/one.gguf" "$G/moving.gguf"
for memory in 0 64M; do
	mount_store "$G/moving.gguf" "$M" --no-warm --memory $memory
	cmp "$M/experts/001/000" "$WORK/plain/experts/001/000"
	exec 9<"$M/experts/001/001"
	sleep 0.1
	printf x | dd of="$G/moving.gguf" bs=1 seek="$(($(stat -c %s "$G/moving.gguf") - 1))" conv=notrunc status=none
	expect_fail 1 'Input/output error' cat "$M/experts/001/002"
	if [ $memory = 64M ]; then
		cmp "$M/experts/001/000" "$WORK/plain/experts/001/000"
		cmp - "$WORK/plain/experts/001/001" <&9
	fi
	[ "$(stat_of "$M" errors)" -ge 1 ] || die "not counted"
	exec 9<&-
	unmount "$M"
	cp "$G/one.gguf" "$G/moving.gguf"
done

section "what cannot be mounted"
head -c -100 "$G/one.gguf" >"$G/cut.gguf"
expect_fail 1 'cut.gguf is cut off: it has [0-9]* bytes, and blk.* would end beyond' expertfs "$G/cut.gguf" "$M"
head -c 20000 "$G/one.gguf" >"$G/cut.gguf"
expect_fail 1 'cut.gguf is damaged: it ends within its header' expertfs "$G/cut.gguf" "$M"
expect_fail 1 's-00002-of-00003.gguf is file 2 of 3: name the first one' expertfs "$G/s-00002-of-00003.gguf" "$M"
rm "$G/s-00003-of-00003.gguf"
expect_fail 1 's-00003-of-00003.gguf: No such file' expertfs "$G/s-00001-of-00003.gguf" "$M"
: >"$G/empty.gguf"
expect_fail 1 'empty.gguf is not a GGUF file' expertfs "$G/empty.gguf" "$M"
