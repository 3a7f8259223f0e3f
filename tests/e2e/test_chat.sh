#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A chat template from the checkpoint to the ids: coli-pack carries it into model.json, coli-engine
# tokenize --chat uses it.
. "$(dirname "$0")/../lib.sh"

golden=$TEST_DATA/chat/golden.json

# template_of NAME: the template's text
template_of() {
	python3 -c 'import json, sys
print(next(t["template"] for t in json.load(open(sys.argv[1]))["templates"]
           if t["name"] == sys.argv[2]), end="")' "$golden" "$1"
}

# config_with FILE VALUE: a tokenizer_config.json whose chat_template is the JSON value
config_with() {
	printf '{"bos_token": {"content": "<s>"}, "eos_token": "</s>", "chat_template": %s}\n' "$2" >"$1"
}

as_json() { python3 -c 'import json, sys; print(json.dumps(sys.stdin.read()))'; }

# ask JSON OPTION...: the program with JSON on its standard input, as expect_fail can run it
cat >"$WORK/ask" <<'EOF'
#!/bin/bash
json=$1
shift
printf '%s\n' "$json" | coli-engine tokenize "$@"
EOF
chmod +x "$WORK/ask"
ask=$WORK/ask

pack() {
	rm -rf "$WORK/store"
	coli-pack "$WORK/model" "$WORK/store" >/dev/null
}

cp -r "$TEST_DATA/glm-s" "$WORK/model"
cp "$TEST_DATA/tale-moe/tokenizer.json" "$WORK/model/"
hello='[{"role": "user", "content": "Hello <|user|>"}]'

section 'no template'
pack
expect_fail 1 'model.json: the model has no chat template; .*--chat-format' \
	"$ask" "$hello" "$WORK/store" --chat

section 'no template, but tokens, which the form of a family needs'
echo '{"bos_token": "<s>"}' >"$WORK/model/tokenizer_config.json"
pack
expect_fail 1 'model.json: the model has no chat template; .*--chat-format' \
	"$ask" "$hello" "$WORK/store" --chat
[ "$("$ask" "$hello" "$WORK/store" --chat-text --chat-format mixtral)" = '<s>[INST] Hello <|user|> [/INST]' ] || die 'another text'

section 'a string in tokenizer_config.json'
config_with "$WORK/model/tokenizer_config.json" "$(template_of mixtral | as_json)"
pack
[ "$("$ask" "$hello" "$WORK/store" --chat-text)" = '<s>[INST] Hello <|user|> [/INST]' ] || die 'another text'

section 'a list of named ones, and what the request says'
config_with "$WORK/model/tokenizer_config.json" \
	"[{\"name\": \"rag\", \"template\": \"x\"}, {\"name\": \"default\", \"template\": $(template_of qwen3 | as_json)}]"
pack
text=$("$ask" "{\"messages\": $hello, \"enable_thinking\": false}" "$WORK/store" --chat-text; echo .)
[ "$text" = $'<|im_start|>user\nHello <|user|><|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n.' ] ||
	die "another text: $text"
[ -z "$("$ask" "{\"messages\": $hello, \"add_generation_prompt\": false}" "$WORK/store" --chat-text | grep assistant)" ] ||
	die 'a generation prompt that was not asked for'

section 'chat_template.jinja goes first; its special tokens are ids, the same text from users is not'
template_of glm-5 >"$WORK/model/chat_template.jinja"
pack
ids=$("$ask" "$hello" "$WORK/store" --chat)
"$ask" "$hello" "$WORK/store" --chat-text >"$WORK/text"
[ "$(cat "$WORK/text")" = '[gMASK]<sop><|system|>Reasoning Effort: Max<|user|>Hello <|user|><|assistant|><think>' ] ||
	die 'another text'
coli-engine tokenize "$WORK/store" --decode <<<"$ids" | cmp - "$WORK/text"
user=$(printf '<|user|>' | coli-engine tokenize "$WORK/store")
[ "$(tr ' ' '\n' <<<"$ids" | grep -cx "$user")" = 1 ] || die "the user wrote a control token: $ids"

section 'the text needs no tokenizer'
mv "$WORK/store/tokenizer.json" "$WORK/"
"$ask" "$hello" "$WORK/store" --chat-text | cmp - "$WORK/text"
expect_fail 1 'tokenizer.json' "$ask" "$hello" "$WORK/store" --chat
mv "$WORK/tokenizer.json" "$WORK/store/"

section 'what is refused'
expect_fail 1 'line [12], is no JSON' "$ask" '[{' "$WORK/store" --chat
expect_fail 1 'there is no list of messages' "$ask" '{}' "$WORK/store" --chat
expect_fail 1 '"tools" is no list' "$ask" '{"messages": [], "tools": {}}' "$WORK/store" --chat
expect_fail 1 '"llama" is not known; known are gpt-oss, glm-5' "$ask" "$hello" "$WORK/store" --chat --chat-format llama
expect_fail 2 'one of --plain, --decode, --chat' "$ask" "$hello" "$WORK/store" --chat --plain
expect_fail 2 'chat-format with the last two' "$ask" "$hello" "$WORK/store" --chat-format qwen3
printf ' ' >>"$WORK/model/chat_template.jinja"
pack
expect_fail 1 'model.json: this chat template is not known; it looks like that of GLM-5.2, whose form --chat-format glm-5 would take' \
	"$ask" "$hello" "$WORK/store" --chat
[ "$("$ask" "$hello" "$WORK/store" --chat --chat-format glm-5)" = "$ids" ] || die 'other ids with --chat-format'

for bytes in '\xff' 'a\0b'; do
	printf "$bytes" >"$WORK/model/chat_template.jinja"
	expect_fail 1 'chat_template.jinja is no UTF-8 text' coli-pack "$WORK/model" "$WORK/none"
done
rm "$WORK/model/chat_template.jinja"
echo '[]' >"$WORK/model/tokenizer_config.json"
expect_fail 1 'tokenizer_config.json is not a JSON object' coli-pack "$WORK/model" "$WORK/none"
