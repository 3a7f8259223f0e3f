#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# coli-engine run --chat and --messages: the prompt is what tokenize --chat makes of the same messages,
# the family's end tokens end the answer, a session goes on, and what is refused. That templates are
# rendered right: test_chat.c of the unit tests.
. "$(dirname "$0")/../lib.sh"

D=$WORK/tale
cp -r "$TEST_DATA/tale-moe" "$WORK/model"
python3 -c 'import json, sys
print(next(t["template"] for t in json.load(open(sys.argv[1]))["templates"]
           if t["name"] == "glm-5"), end="")' "$TEST_DATA/chat/golden.json" >"$WORK/model/chat_template.jinja"
plain_folder "$WORK/model" "$D"

# prompt_of FILE, said_of FILE: token ids of a --json report: the prompt's, those made
prompt_of() { python3 -c 'import json, sys; print(*json.load(open(sys.argv[1]))["prompt_ids"])' "$1"; }
said_of() { python3 -c 'import json, sys; print(*json.load(open(sys.argv[1]))["ids"])' "$1"; }

section 'the prompt is that of tokenize --chat'
user='{"role": "user", "content": "Who was the king? <|user|>"}'
ids=$(coli-engine tokenize "$D" --chat <<<"[$user]")
coli-engine run "$D" --chat -p 'Who was the king? <|user|>' -n 20 --json >"$WORK/j"
[ "$(prompt_of "$WORK/j")" = "$ids" ] || die "another prompt than $ids"
printf 'Who was the king? <|user|>' | coli-engine run "$D" --chat -f - -n 20 --json >"$WORK/k"
cmp <(prompt_of "$WORK/j") <(prompt_of "$WORK/k")
system='{"role": "system", "content": "Be brief."}'
ids=$(coli-engine tokenize "$D" --chat <<<"[$system, $user]")
coli-engine run "$D" --chat --system 'Be brief.' -p 'Who was the king? <|user|>' -n 1 --json >"$WORK/k"
[ "$(prompt_of "$WORK/k")" = "$ids" ] || die "another prompt than $ids"
talk="{\"messages\": [$system, $user, {\"role\": \"assistant\", \"content\": \"Arthur.\"}, $user], \"enable_thinking\": false}"
ids=$(coli-engine tokenize "$D" --chat <<<"$talk")
echo "$talk" >"$WORK/talk.json"
coli-engine run "$D" --messages "$WORK/talk.json" -n 1 --json >"$WORK/k"
[ "$(prompt_of "$WORK/k")" = "$ids" ] || die "another prompt than $ids"
coli-engine run "$D" --messages - -n 1 --json <"$WORK/talk.json" >"$WORK/k"
[ "$(prompt_of "$WORK/k")" = "$ids" ] || die "another prompt than $ids"

section 'the text alone is shown'
coli-engine run "$D" --chat -p 'Who was the king? <|user|>' -n 20 -q >"$WORK/text"
[ "$(cat "$WORK/text")" = "$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["text"])' "$WORK/j")" ] ||
	die 'another text'

section 'an end token of the family ends the answer, though the model does not list it'
# <|observation|> and a token of the answer change places: what was that token now is the end.
python3 - "$WORK/j" "$D/tokenizer.json" <<'EOF' >"$WORK/end"
import json, sys
report, tokenizer = json.load(open(sys.argv[1])), json.load(open(sys.argv[2]))
at = next(i for i, t in enumerate(report["ids"])
          if i >= 3 and t not in report["prompt_ids"] and t not in report["ids"][:i])
vocab, token = tokenizer["model"]["vocab"], report["ids"][at]
added = next(a for a in tokenizer["added_tokens"] if a["content"] == "<|observation|>")
other = next(k for k, v in vocab.items() if v == token)
assert token not in [a["id"] for a in tokenizer["added_tokens"]]
vocab[other], vocab["<|observation|>"], added["id"] = added["id"], token, token
json.dump(tokenizer, open(sys.argv[2], "w"))
print(*report["ids"][:at + 1])
EOF
coli-engine run "$D" --chat -p 'Who was the king? <|user|>' -n 20 --json >"$WORK/k"
cmp <(prompt_of "$WORK/j") <(prompt_of "$WORK/k")
[ "$(said_of "$WORK/k")" = "$(cat "$WORK/end")" ] || die "did not end after $(cat "$WORK/end")"
[ "$(json_get "$WORK/k" stop)" = eos ]
coli-engine run "$D" --prompt-ids "$(prompt_of "$WORK/k")" -n 20 --json >"$WORK/k"
cmp <(said_of "$WORK/j") <(said_of "$WORK/k") || die 'without --chat the model alone says what ends'

section 'a session goes on with the talk'
cp "$WORK/model/tokenizer.json" "$D/"
# In a form without thoughts, so that what was said before stays as it was said.
coli-engine run "$D" --chat -p 'Who was the king?' -n 20 --json --chat-format qwen2 --session "$WORK/session" >"$WORK/j"
python3 - "$WORK/j" <<'EOF' >"$WORK/talk.json"
import json, sys
said = json.load(open(sys.argv[1]))["text"]
json.dump([{"role": "user", "content": "Who was the king?"}, {"role": "assistant", "content": said},
           {"role": "user", "content": "And the queen?"}], sys.stdout)
EOF
go_on() { coli-engine run "$D" --messages "$WORK/talk.json" -n 20 --json --logits --chat-format qwen2 "$@"; }
go_on >"$WORK/fresh"
go_on --session "$WORK/session" >"$WORK/got"
# The last token made is in no context, the last one shared is computed anew.
restored=$(json_get "$WORK/got" session_restored)
first=$(prompt_of "$WORK/j" | wc -w)
[ "$restored" -ge $((first + 18)) ] || die "only $restored tokens of $first and an answer of 20 were restored"
cmp <(said_of "$WORK/fresh") <(said_of "$WORK/got")
[ "$(json_get "$WORK/fresh" logits)" = "$(json_get "$WORK/got" logits)" ] || die 'other logits'

section 'what is refused'
expect_fail 2 'run takes one of -p, -f, --prompt-ids and --messages' coli-engine run "$D" --chat
expect_fail 2 'run takes one of' coli-engine run "$D" --messages x -p y
expect_fail 2 '--chat is for -p and -f' coli-engine run "$D" --prompt-ids 1 --chat
expect_fail 2 '--system is for --chat' coli-engine run "$D" -p x --system y
expect_fail 2 '--chat-format is for --chat and --messages' coli-engine run "$D" -p x --chat-format qwen3
expect_fail 1 'what the user says is no UTF-8 text' coli-engine run "$D" --chat -p $'\xff' -q
expect_fail 1 'what the system says is no UTF-8 text' coli-engine run "$D" --chat -p x --system $'\xff' -q
echo '[{' >"$WORK/bad"
expect_fail 1 "$WORK/bad, line [12], is no JSON" coli-engine run "$D" --messages "$WORK/bad" -q
expect_fail 1 "$WORK/nothing cannot be read" coli-engine run "$D" --messages "$WORK/nothing" -q
expect_fail 1 'message 0 has the role "system"; this template takes' \
	coli-engine run "$D" --chat -p x --system y --chat-format mixtral -q
expect_fail 1 'the chat format "llama" is not known' coli-engine run "$D" --chat -p x --chat-format llama -q
printf ' ' >>"$WORK/model/chat_template.jinja"
plain_folder "$WORK/model" "$WORK/other"
expect_fail 1 'this chat template is not known; it looks like that of GLM-5.2, whose form --chat-format glm-5 would take' \
	coli-engine run "$WORK/other" --chat -p x -q
coli-engine run "$D" --chat -p x -n 20 --json >"$WORK/j"
coli-engine run "$WORK/other" --chat -p x -n 20 --json --chat-format glm-5 >"$WORK/got"
cmp <(said_of "$WORK/j") <(said_of "$WORK/got")
