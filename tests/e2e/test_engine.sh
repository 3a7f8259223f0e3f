#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# coli-engine as people use it, on plain directories: what it prints where, every option, the same bits
# however a prompt is fed, every refusal. Numbers against the reference: test_oracle.sh; mounts: test_tokens.sh.
. "$(dirname "$0")/../lib.sh"

tale=$TEST_DATA/tale-moe
expected=$tale/expected.json
PROMPT='Once upon a time there was a king'
D=$WORK/tale

plain_folder "$tale" "$D" --bits 16 --dense-bits 16
plain_folder "$tale" "$WORK/tale4"
plain_folder "$TEST_DATA/glm-s" "$WORK/glm" --bits 32 --dense-bits 32
plain_folder "$TEST_DATA/oracles/fused" "$WORK/fused" --bits 32 --dense-bits 32

# holds FILE EXPRESSION: true of the JSON object o.
holds()
{
	python3 -c 'import json, math, sys
o = json.load(open(sys.argv[1]))
e = json.load(open(sys.argv[3]))
sys.exit(0 if eval(sys.argv[2]) else 1)' "$1" "$2" "$expected" || {
		cut -c1-600 "$1" >&2
		die "$1: not true: $2"
	}
}

section 'text goes to stdout and nothing else does'
coli-engine run "$D" -p "$PROMPT" -n 40 >"$WORK/text" 2>"$WORK/err"
[ "$(cat "$WORK/text")" = "$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["greedy"][0]["text"])' "$expected")" ] ||
	die "another text: $(cat "$WORK/text")"
head -n 1 "$WORK/err" | grep -Eq "^$D: [0-9.]+ [kMG]B for the dense tensors, .* a context of 2048 tokens.* available" ||
	die 'the line on memory is missing'
grep -Eq '^prompt +8 tokens' "$WORK/err" || die 'no statistics of the prompt'
grep -Eq '^made +40 tokens' "$WORK/err" || die 'no statistics of the text'
grep -Eq '^experts +[0-9]+ opened.*mode plain$' "$WORK/err" || die 'no statistics of the experts'
coli-engine run "$D" -p "$PROMPT" -n 40 -q >"$WORK/text2" 2>"$WORK/err"
cmp "$WORK/text" "$WORK/text2"
[ ! -s "$WORK/err" ] || die '--quiet is not'

section 'a prompt from a file, from stdin, as ids'
printf %s "$PROMPT" >"$WORK/prompt"
ids=$(coli-engine tokenize "$D" <"$WORK/prompt")
coli-engine run "$D" -f "$WORK/prompt" -n 40 -q >"$WORK/text2"
cmp "$WORK/text" "$WORK/text2"
coli-engine run "$D" -f - -n 40 -q <"$WORK/prompt" >"$WORK/text2"
cmp "$WORK/text" "$WORK/text2"
coli-engine run --prompt-ids "$ids" -n 40 -q "$D" >"$WORK/text2"
cmp "$WORK/text" "$WORK/text2"
coli-engine run "$D" --prompt-ids "${ids// /, }" -n 40 -q >"$WORK/text2"
cmp "$WORK/text" "$WORK/text2"

section 'one JSON object'
coli-engine run "$D" -p "$PROMPT" -n 40 --draft off --json >"$WORK/j" 2>"$WORK/err"
[ ! -s "$WORK/err" ] || die '--json says something on stderr'
holds "$WORK/j" 'o["prompt_ids"] == e["greedy"][0]["prompt_ids"] and o["text"] == e["greedy"][0]["text"]'
holds "$WORK/j" 'len(o["ids"]) == 40 and o["stop"] == "length" and o["mode"] == "plain"'
holds "$WORK/j" 'o["seed"] is None and o["hits"] is None and o["misses"] is None and "logits" not in o'
holds "$WORK/j" 'o["time_to_first_token_s"] > 0 and o["prompt_tokens_per_s"] > 0 and o["decode_tokens_per_s"] > 0'
# 5 layers of experts; 39 steps of 4 experts each after the prompt, which opens at most 8 x 4 a layer.
holds "$WORK/j" '5 * 39 * 4 + 5 * 4 <= o["experts_opened"] <= 5 * 39 * 4 + 5 * 32'
holds "$WORK/j" 'o["expert_bytes"] == o["experts_opened"] * 3 * 64 * 256 * 2'
coli-engine run "$D" -p "$PROMPT" -n 0 --json --logits >"$WORK/j"
holds "$WORK/j" 'o["ids"] == [] and o["text"] == "" and len(o["logits"]) == 2048 and o["stop"] == "length"'
holds "$WORK/j" 'o["time_to_first_token_s"] is None and o["decode_tokens_per_s"] is None'
holds "$WORK/j" 'max(range(2048), key=lambda i: o["logits"][i]) == e["greedy"][0]["greedy"][0]'

section 'the end token ends, and is no text'
python3 - "$TEST_DATA/oracles/fused/expected.json" >"$WORK/case" <<'EOF'
import json, sys
for c in json.load(open(sys.argv[1]))["cases"]:
    if len(c["greedy"]) < 24:
        print(*c["prompt"])
        print(*c["greedy"])
        break
EOF
[ -s "$WORK/case" ] || die 'the oracle has no case with an end token'
coli-engine run "$WORK/fused" --prompt-ids "$(head -n 1 "$WORK/case")" -n 24 --json >"$WORK/j"
holds "$WORK/j" "o['stop'] == 'eos' and o['ids'] == [int(i) for i in '$(tail -n 1 "$WORK/case")'.split()]"
python3 -c 'import json, sys; print(*json.load(open(sys.argv[1]))["ids"][:-1])' "$WORK/j" |
	coli-engine tokenize "$WORK/fused" --decode >"$WORK/text2"
python3 - "$WORK/j" "$WORK/text2" <<'EOF'
import json, sys
want = open(sys.argv[2], "rb").read().decode("utf-8", "replace")
got = json.load(open(sys.argv[1]))["text"]
assert got == want, (got, want)
EOF

section 'the same bits however a prompt is fed'
# Sanitizers make it slow.
tokens=400
[ -z "${SANITIZE:-}" ] || tokens=80
coli-engine tokenize "$D" <"$tale/held-out.txt" | cut -d' ' -f1-400 >"$WORK/long"
some=$(cut -d' ' -f1-$tokens "$WORK/long")
bits()
{
	local dir=$1 ids=$2 want=
	shift 2
	for options in '' '--chunk 1' '--chunk 7' '--chunk 64' '--threads 1' '--threads 3 --chunk 100'; do
		# shellcheck disable=SC2086
		coli-engine run "$dir" --prompt-ids "$ids" -n 12 --json --logits $options "$@" >"$WORK/j"
		got=$(python3 -c 'import json, sys; o = json.load(open(sys.argv[1])); print(o["ids"], o["logits"])' "$WORK/j" | sha256sum)
		[ "$got" = "${want:=$got}" ] || die "$options: other bits"
	done
}
bits "$D" "$some"
bits "$D" "$some" --kv bf16
bits "$WORK/tale4" "$some"
bits "$WORK/tale4" "$some" --activations 32
# A context of more than index_topk (12) keys, and shared layers.
bits "$WORK/glm" "$(cut -d' ' -f1-150 "$WORK/long")"

section 'and token by token, as decoding does it: the logits of a longer prompt are those of its pieces'
python3 - "$WORK/glm" "$(cut -d' ' -f1-60 "$WORK/long")" <<'EOF'
import json, subprocess, sys
def run(ids, n):
    return json.loads(subprocess.check_output(["coli-engine", "run", sys.argv[1], "--prompt-ids", " ".join(map(str, ids)),
                                               "-n", str(n), "--json", "--logits"]))
prompt = [int(i) for i in sys.argv[2].split()]
whole = run(prompt, 20)["ids"]
for k in (1, 5, 19):
    assert run(prompt + whole[:k], 20 - k)["ids"] == whole[k:], k
EOF

section 'sampling: a seed means the same, another one something else, none is drawn and told'
sample()
{
	coli-engine run "$D" -p "$PROMPT" -n 30 --temp 1 --top-p 0.95 --top-k 200 --json "$@"
}
sample --seed 7 >"$WORK/j1"
sample --seed 7 --threads 1 --chunk 3 >"$WORK/j2"
sample --seed 8 >"$WORK/j3"
sample >"$WORK/j4"
sample --seed "$(json_get "$WORK/j4" seed)" >"$WORK/j5"
holds "$WORK/j1" "o['seed'] == 7 and o['ids'] == json.load(open('$WORK/j2'))['ids']"
holds "$WORK/j1" "o['ids'] != json.load(open('$WORK/j3'))['ids']"
holds "$WORK/j4" "o['ids'] == json.load(open('$WORK/j5'))['ids'] and o['ids'] != json.load(open('$WORK/j1'))['ids']"
sample --temp 5 --top-k 1 >"$WORK/j1"
coli-engine run "$D" -p "$PROMPT" -n 30 --json --seed 7 >"$WORK/j2"
holds "$WORK/j1" "o['ids'] == json.load(open('$WORK/j2'))['ids']"
holds "$WORK/j2" 'o["seed"] is None'

section 'the length of the context'
words=$(cut -d' ' -f1-300 "$WORK/long")
expect_fail 1 'the prompt has 300 tokens, but the context holds 299' coli-engine run "$D" --prompt-ids "$words" --ctx 299
coli-engine run "$D" --prompt-ids "$words" --ctx 300 -n 5 --json >"$WORK/j"
holds "$WORK/j" 'len(o["ids"]) == 1 and o["stop"] == "length"' # the last one needs no place
coli-engine run "$D" --prompt-ids "$words" --ctx 303 -n 5 --json >"$WORK/j"
holds "$WORK/j" 'len(o["ids"]) == 4'
python3 -c 'print(*[5] * 2049)' >"$WORK/too-long"
expect_fail 1 'the prompt has 2049 tokens, but the context holds 2048, as many as the model can' \
	coli-engine run "$D" --prompt-ids "$(cat "$WORK/too-long")"
expect_fail 1 '[-]-ctx 2049 is more than the 2048 tokens' coli-engine run "$D" -p x --ctx 2049
coli-engine run "$D" --prompt-ids 5 -n 2047 --json >"$WORK/j" 2>"$WORK/err" || die "$(cat "$WORK/err")"
holds "$WORK/j" 'len(o["ids"]) == 2047 or o["stop"] == "eos"'

section 'eval'
if [ -z "${SANITIZE:-}" ]; then
	coli-engine eval "$D" -f "$tale/held-out.txt" --ctx 256 --json >"$WORK/j"
	holds "$WORK/j" 'o["tokens"] == e["held_out"]["tokens"] and o["predicted"] == e["held_out"]["predicted"] and o["windows"] == 24'
	holds "$WORK/j" 'abs(o["nll"] - e["held_out"]["nll"]) < 1e-4 and abs(o["ppl"] - math.exp(o["nll"])) < 1e-6'
fi
head -c 3000 "$tale/held-out.txt" >"$WORK/some"
coli-engine eval "$D" -f "$WORK/some" --ctx 50 --json --threads 1 >"$WORK/j1"
coli-engine eval "$D" -f - --ctx 50 --json --chunk 9 <"$WORK/some" >"$WORK/j2"
holds "$WORK/j1" "o['nll'] == json.load(open('$WORK/j2'))['nll']"
coli-engine eval "$D" -f "$WORK/some" --ctx 50 2>/dev/null | grep -Eq '^[0-9]+ tokens predicted in [0-9]+ windows of up to 50: [0-9.]+ nats' ||
	die 'eval says nothing'
# A model that is surely wrong: e to the loss is more than any number.
mkdir "$WORK/sure"
ln -s "$D/experts" "$D/tokenizer.json" "$WORK/sure"
cp "$D/model.json" "$D/dense.bin" "$WORK/sure"
python3 - "$WORK/sure" <<'EOF'
import json, struct, sys
t, = [t for t in json.load(open(sys.argv[1] + "/model.json"))["dense"]["tensors"] if t["name"] == "model.norm.weight"]
with open(sys.argv[1] + "/dense.bin", "r+b") as f:
    f.seek(t["offset"])
    f.write(struct.pack("<f", 1e4) * t["shape"][0])
EOF
coli-engine eval "$WORK/sure" -f "$WORK/some" --ctx 50 --json >"$WORK/j"
holds "$WORK/j" 'o["nll"] > 710 and o["ppl"] is None'
rm -r "$WORK/sure"
printf a >"$WORK/one"
expect_fail 1 'nothing to predict' coli-engine eval "$D" -f "$WORK/one"
expect_fail 1 'nothing to predict' coli-engine eval "$D" -f /dev/null
expect_fail 1 'nowhere cannot be read: No such file' coli-engine eval "$D" -f "$WORK/nowhere"

section 'tokenize'
coli-engine tokenize "$D" <"$tale/held-out.txt" | coli-engine tokenize "$D" --decode | cmp - "$tale/held-out.txt"
head -c 5000 /dev/urandom >"$WORK/bytes"
coli-engine tokenize "$D" <"$WORK/bytes" | coli-engine tokenize "$D" --decode | cmp - "$WORK/bytes"
[ "$(printf '<|endoftext|>' | coli-engine tokenize "$D")" = 0 ] || die 'the special token is not recognised'
[ "$(printf '<|endoftext|>' | coli-engine tokenize "$D" --plain | wc -w)" -gt 1 ] || die '--plain recognises it'
[ "$(coli-engine tokenize "$D" </dev/null)" = '' ] || die 'no text gave tokens'
expect_fail 1 'holds no tokenizer.json: is expertfs mounted there' coli-engine tokenize "$WORK"
fails()
{
	local regex=$1 input=$2 status=0
	shift 2
	printf %s "$input" | "$@" >/dev/null 2>"$WORK/err" || status=$?
	[ $status = 1 ] && grep -Eq "$regex" "$WORK/err" && [ "$(wc -l <"$WORK/err")" = 1 ] ||
		die "$*: $status, $(cat "$WORK/err")"
}
fails 'token 2048 is not defined' '5 2048' coli-engine tokenize "$D" --decode
fails '"x7" is not a token id' '5 x7' coli-engine tokenize "$D" --decode
fails '"-7" is not a token id' '5 -7' coli-engine tokenize "$D" --decode
fails 'is not a token id' '99999999999999999999' coli-engine tokenize "$D" --decode

section 'usage'
for c in '' run eval tokenize; do
	# shellcheck disable=SC2086
	coli-engine $c --help | grep -q '^usage: coli-engine' || die "no help: $c"
done
coli-engine --version | grep -Eqx 'coli-engine [0-9][0-9.]*' || die 'no version'
expect_fail 1 'cannot be written to' bash -c 'exec coli-engine run --help >/dev/full'
expect_fail 2 'which command' coli-engine
expect_fail 2 'no command "walk"' coli-engine walk
expect_fail 2 'one MOUNT' coli-engine run -p x
expect_fail 2 'one MOUNT' coli-engine run "$D" "$D" -p x
expect_fail 2 'one of -p' coli-engine run "$D"
expect_fail 2 'one of -p' coli-engine run "$D" -p x -f y
expect_fail 2 'logits is for --json' coli-engine run "$D" -p x --logits
expect_fail 2 'profile is not for --quiet' coli-engine run "$D" -p x --profile -q
expect_fail 2 'top-k and --top-p are for a --temp' coli-engine run "$D" -p x --top-p 0.9
expect_fail 2 'top-k and --top-p are for a --temp' coli-engine run "$D" -p x --top-k 40
expect_fail 2 '[-]-threads takes a number from 1' coli-engine run "$D" -p x --threads 0
expect_fail 2 '[-]-temp takes' coli-engine run "$D" -p x --temp warm
expect_fail 2 '[-]-temp takes' coli-engine run "$D" -p x --temp nan
expect_fail 2 '[-]-top-p takes' coli-engine run "$D" -p x --top-p 1.5
expect_fail 2 '[-]-top-k takes' coli-engine run "$D" -p x --top-k -1
expect_fail 2 '[-]-seed takes' coli-engine run "$D" -p x --seed 1x
expect_fail 2 '[-]-activations takes 8 or 32' coli-engine run "$D" -p x --activations 16
expect_fail 2 '[-]-kv takes f32 or bf16' coli-engine run "$D" -p x --kv f16
expect_fail 2 '[-]n takes' coli-engine run "$D" -p x -n -4
expect_fail 2 'no option --what' coli-engine run "$D" -p x --what
expect_fail 2 'no option -z' coli-engine eval "$D" -f x -z
expect_fail 2 'no option -z' coli-engine run --json -zq "$D" -p x
expect_fail 2 '^coli-engine: --json takes no value' coli-engine run "$D" -p x --json=yes
expect_fail 2 '^coli-engine: --quiet takes no value' coli-engine run "$D" -p x --quiet=yes
expect_fail 2 '^coli-engine: -p needs a value' coli-engine run "$D" -p
expect_fail 2 '[-]-ctx needs a value' coli-engine eval "$D" -f x --ctx
expect_fail 2 'needs a text' coli-engine eval "$D"
expect_fail 2 'one of --plain, --decode, --chat and --chat-text' coli-engine tokenize "$D" --plain --decode

section 'what cannot be done is said in one sentence'
expect_fail 1 'the prompt is empty' coli-engine run "$D" -p ''
expect_fail 1 'the prompt is empty' coli-engine run "$D" -f /dev/null
expect_fail 1 'the prompt is empty' coli-engine run "$D" --prompt-ids ' '
expect_fail 1 'token 2048 is not in the vocabulary of 2048' coli-engine run "$D" --prompt-ids '1 2048' --json
expect_fail 1 "$WORK/nowhere holds no model.json: is expertfs mounted there" coli-engine run "$WORK/nowhere" -p x
expect_fail 1 "$WORK holds no model.json" coli-engine run "$WORK" -p x
expect_fail 1 'nowhere cannot be read: No such file' coli-engine run "$D" -f "$WORK/nowhere"
expect_fail 1 'cannot be written to standard output' bash -c 'exec coli-engine run "$1" -p x -n 4 -q >/dev/full' bash "$D"
expect_fail 1 'cannot be written to standard output' bash -c 'exec coli-engine run "$1" -p x -n 4 --json >/dev/full' bash "$D"
cp -r "$D" "$WORK/bad"
B=$WORK/bad
truncate -s -64 "$B/dense.bin"
expect_fail 1 "$B/dense.bin has [0-9]+ bytes, model.json says" coli-engine run "$B" -p x
rm "$B/dense.bin"
expect_fail 1 "$B/dense.bin cannot be read: No such file" coli-engine run "$B" -p x
cp "$D/dense.bin" "$B/dense.bin"
for e in "$B"/experts/003/*; do
	truncate -s 100 "$e"
done
expect_fail 1 "expert $B/experts/003/[0-9]+ has 100 bytes, model.json says 98304" coli-engine run "$B" -p x --json
rm -r "$B/experts/003"
expect_fail 1 "expert $B/experts/003/[0-9]+ cannot be read: No such file" coli-engine run "$B" -p x --json
rm -r "$B/experts"
expect_fail 1 'is it a store that is not mounted' coli-engine run "$B" -p x
truncate -s 1000 "$B/tokenizer.json"
expect_fail 1 'tokenizer.json' coli-engine run "$B" -p x
rm "$B/tokenizer.json"
expect_fail 1 'holds no tokenizer.json' coli-engine run "$B" -p x
truncate -s 1000 "$B/model.json"
expect_fail 1 "$B/model.json is not JSON" coli-engine run "$B" -p x
rm -r "$B"

section 'too little memory'
if [ -z "${SANITIZE:-}" ]; then # a sanitizer's shadow needs all the address space
	expect_fail 1 "$D needs .* but only .* available .*ulimit" bash -c 'ulimit -v 12000; exec coli-engine run "$1" -p x' bash "$D"
fi
python3 - "$WORK/glm" "$WORK/huge" <<'EOF'
import json, os, sys
os.makedirs(sys.argv[2] + "/experts")
m = json.load(open(sys.argv[1] + "/model.json"))
m["config"]["max_position_embeddings"] = 1 << 26
json.dump(m, open(sys.argv[2] + "/model.json", "w"))
for name in ("dense.bin", "tokenizer.json"):
    os.symlink(sys.argv[1] + "/" + name, sys.argv[2] + "/" + name)
EOF
expect_fail 1 'key-value cache [0-9.]+ GB.*but only [0-9.]+ GB are available' coli-engine run "$WORK/huge" -p x --ctx $((1 << 26))

section 'a file that is cut short while it is in use'
rm -f "$WORK/text" # of an earlier run: its size must not be taken for this one's
cp -r "$D" "$B"
coli-engine run "$B" -p "$PROMPT" -n 2000 --temp 1 --seed 3 >"$WORK/text" 2>"$WORK/err" &
for _ in $(seq 100); do
	[ -s "$WORK/text" ] && break
	sleep 0.1
done
[ -s "$WORK/text" ] || die 'no text came'
truncate -s 4096 "$B/dense.bin"
status=0
wait %% || status=$?
[ $status = 1 ] || die "ended with $status"
grep -Eq "^coli-engine: a file of $B ended or could not be read" "$WORK/err" || die "said: $(cat "$WORK/err")"
