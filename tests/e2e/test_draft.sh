#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Speculation with the MTP layer: what the layer guesses, against the reference; and that nobody can see from
# the tokens whether, how far and how well was guessed.
. "$(dirname "$0")/../lib.sh"

# without FROM TO WORD: the checkpoint with all tensors that have WORD in their names under other names.
without()
{
	cp -r "$1" "$2"
	python3 - "$2/model.safetensors" "$3" <<'EOF'
import json, struct, sys
with open(sys.argv[1], "r+b") as f:
    n = struct.unpack("<Q", f.read(8))[0]
    head = json.loads(f.read(n))
    text = json.dumps({("x" + k[1:] if sys.argv[2] in k else k): v for k, v in head.items()}, separators=(",", ":"))
    assert len(text) <= n and text.encode().count(b'"xodel') > 0
    f.seek(8)
    f.write(text.encode().ljust(n))
EOF
}

oracle=$TEST_DATA/oracles/mtp
plain_folder "$oracle" "$WORK/own" --bits 32 --dense-bits 32
without "$oracle" "$WORK/half" layers.3.embed_tokens
without "$WORK/half" "$WORK/none" layers.3.shared_head.head
plain_folder "$WORK/none" "$WORK/shared" --bits 32 --dense-bits 32
plain_folder "$TEST_DATA/tale-moe" "$WORK/tale"
plain_folder "$TEST_DATA/oracles/fp8" "$WORK/fp8"
plain_folder "$TEST_DATA/glm-s" "$WORK/glm"

section 'guesses against the reference'
for which in own shared; do
	python3 - "$oracle/expected.json" "$BUILD/tests/draft_logits" "$WORK/$which" $which <<'EOF'
import json, subprocess, sys
cases, worst = json.load(open(sys.argv[1]))["cases"], 0
assert len(cases) >= 5 and max(len(c["prompt"]) for c in cases) > 30
for c in cases:
    want = c[sys.argv[4]]
    out = json.loads(subprocess.check_output([sys.argv[2], sys.argv[3], str(len(want)), *map(str, c["prompt"])]))
    assert out["next"] == c["next"] and len(out["guesses"]) == len(want) == 4
    for got, ref in zip(out["guesses"], want):
        assert len(got) == len(ref["logits"]) == 300
        worst = max(worst, max(abs(a - b) for a, b in zip(got, ref["logits"])))
        assert max(range(300), key=lambda i: got[i]) == ref["best"], (len(c["prompt"]), ref["best"])
print(f"   {sys.argv[4]}: largest difference {worst:.2e}")
assert worst < 1e-3, worst
EOF
done

cat >"$WORK/check.py" <<'EOF'
import json, subprocess, sys

def run(directory, *args):
    return json.loads(subprocess.check_output(["coli-engine", "run", directory, "--json", *map(str, args)]))

class Same:
    """Compares runs that guess with those that do not, and counts how the guesses went."""
    def __init__(self, directory):
        self.dir, self.right, self.wrong, self.runs = directory, 0, 0, 0

    def __call__(self, *args, lengths=(1, 2, 3, 5, "auto")):
        want = run(self.dir, *args, "--draft", "off")
        assert want["draft"]["drafted"] == 0
        for n in lengths:
            got = run(self.dir, *args, "--draft", n)
            for key in ("ids", "text", "stop", "seed", "prompt_ids"):
                assert got[key] == want[key], (args, n, key, got[key], want[key])
            d = got["draft"]
            assert 0 <= d["accepted"] <= d["drafted"], d
            assert n == "auto" or d["drafted"] <= n * d["steps"], d
            self.right += d["accepted"]
            self.wrong += d["drafted"] - d["accepted"]
            self.runs += 1
        return want

    def both(self):
        print(f"   {self.dir.split('/')[-1]}: {self.runs} runs, {self.right} guesses right, {self.wrong} wrong")
        assert self.right and self.wrong

def ids(n, seed, vocab):
    return " ".join(str(10 + (7919 * i * i + seed * 31 * i + seed) % (vocab - 20)) for i in range(n))
EOF
check()
{
	PYTHONPATH=$WORK python3 - "$WORK" "$TEST_DATA"
}

section 'the same tokens, greedy and drawn'
check <<'EOF'
from check import *
same = Same(sys.argv[1] + "/tale")
same("-p", "Once upon a time there was a king", "-n", 70)
same("-p", "The old woman said to the", "-n", 40, "--temp", 0.8, "--top-p", 0.95, "--seed", 7)
same("-p", "In the middle of the forest", "-n", 30, "--temp", 1.2, "--top-k", 40, "--seed", 3, "--threads", 3, lengths=(2, 5))
same("-p", "The fox", "-n", 30, "--kv", "bf16", "--threads", 1, lengths=(1, 3))
same("-p", "The fox", "-n", 20, "--chunk", 1, "--activations", 32, lengths=(1, 3))
text = open(sys.argv[2] + "/tale-moe/held-out.txt").read()[:1200]
same("-p", text, "-n", 24, "--chunk", 100, lengths=(3,))
same.both()
d = run(same.dir, "-p", "Once upon a time there was a king", "-n", 200, "--draft", 1)["draft"]
# A trained layer, wired as it was trained, foretells such text. 85 of 114 when this was written; a third of
# that with the halves of eh_proj exchanged or positions off by one would still be speculation, but not this.
assert d["accepted"] > 0.6 * d["drafted"], d
assert d["steps"] == d["drafted"] and abs(d["tokens_per_step"] - 1 - d["accepted"] / d["steps"]) < 1e-6
for name in ("fp8", "own"):  # random layers: hardly a guess is right
    same = Same(sys.argv[1] + "/" + name)
    for n in (1, 40):
        same("--prompt-ids", ids(n, n, 300), "-n", 24, lengths=(1, 3))
        same("--prompt-ids", ids(n, n + 1, 300), "-n", 24, "--temp", 1, "--seed", n, lengths=(5,))
    print(f"   {name}: {same.right} right, {same.wrong} wrong")
    assert same.wrong
EOF

section 'and where few keys are kept: ties, and the length up to which they follow the reference'
cp -r "$WORK/tale" "$WORK/few"
python3 - "$WORK/few/model.json" <<'EOF'
import json, sys
model = json.load(open(sys.argv[1]))
model["config"]["index_topk"] = 24
json.dump(model, open(sys.argv[1], "w"))
EOF
check <<'EOF'
from check import *
same = Same(sys.argv[1] + "/few")
words = subprocess.check_output(["coli-engine", "tokenize", same.dir], stdin=open(sys.argv[2] + "/tale-moe/held-out.txt")).split()
prompt = lambda n: ("--prompt-ids", b" ".join(words[100:100 + n]).decode())
for n in (12, 20):  # 24 are seen before anything is scored
    same(*prompt(n), "-n", 30, lengths=(1, 5))
for n in (508, 511, 512):
    same(*prompt(n), "-n", 12, lengths=(3,))
same(*prompt(510), "-n", 20, "--temp", 0.9, "--seed", 1, lengths=(5,))
same.both()
EOF

section 'an end token among the guesses'
cp -r "$WORK/tale" "$WORK/ends"
check <<'EOF'
from check import *
same = Same(sys.argv[1] + "/ends")
prompt = ("-p", "Once upon a time there was a king", "-n", 30)
plain, path = run(same.dir, *prompt, "--draft", "off"), same.dir + "/model.json"
model = json.load(open(path))
for i in range(1, 18):
    model["eos_token_ids"] = [plain["ids"][i]]
    json.dump(model, open(path, "w"))
    got = same(*prompt, lengths=(5,))
    assert got["stop"] == "eos" and got["ids"] == plain["ids"][:plain["ids"].index(plain["ids"][i]) + 1]
same.both()
EOF

section 'the context ends, and fewer tokens are wanted than could be guessed'
check <<'EOF'
from check import *
same = Same(sys.argv[1] + "/tale")
prompt = ("-p", "Once upon a time there was a king")
n = len(run(same.dir, *prompt, "-n", 0)["prompt_ids"])
for room in range(0, 8):
    got = same(*prompt, "-n", 50, "--ctx", n + room, lengths=(2, 15))
    assert len(got["ids"]) == room + 1 and got["stop"] == "length"
for wanted in range(0, 8):
    assert len(same(*prompt, "-n", wanted, lengths=(2, 15))["ids"]) == wanted
same.both()
EOF

section 'a session holds what was said, and no guess'
check <<'EOF'
from check import *
tale, at = sys.argv[1] + "/tale", sys.argv[1] + "/session"
want = run(tale, "-p", "Once upon a time there was a king", "-n", 60, "--draft", "off", "--logits")
words = want["prompt_ids"] + want["ids"]
first, known = len(want["prompt_ids"]), 1
for draft in (3, "off", 5, "auto"):  # each goes on from what the one before has left
    for n in (first, first + 17, first + 18, first + 40):
        got = run(tale, "--prompt-ids", " ".join(map(str, words[:n])), "-n", 9, "--session", at, "--draft", draft)
        assert got["ids"] == words[n:n + 9], (draft, n, got["ids"], words[n:n + 9])
        assert got["session_restored"] == min(known, n) - 1, (draft, n, got["session_restored"])
        known = max(known, n + 8)  # the last one made is not fed; nothing is taken back
EOF

section 'auto measures, and says what it found'
check <<'EOF'
from check import *
dir = sys.argv[1] + "/tale"
o = run(dir, "-p", "Once upon a time there was a king", "-n", 200)
d = o["draft"]
assert d["verdict"] in ("off: faster without", "1: faster", "2: faster", "4: faster", "8: faster"), d
assert d["rates"]["0"] > 0 and d["rates"]["1"] > 0 and d["drafted"] > 0 and d["seconds"] > 0
assert run(dir, "-p", "x", "-n", 4)["draft"]["verdict"] == "too few tokens to measure"
assert run(dir, "-p", "x", "-n", 4, "--draft", "off")["draft"]["verdict"] == "off, as asked for"
assert run(dir, "-p", "x", "-n", 4, "--draft", 3)["draft"]["verdict"] == "3, as asked for"
d = run(sys.argv[1] + "/glm", "--prompt-ids", "5 6 7", "-n", 4)["draft"]
assert d["verdict"] == "off: the model has no MTP layer" and d["tokens_per_step"] is None
EOF
coli-engine run "$WORK/tale" -p 'Once upon a time' -n 40 --draft 2 >"$WORK/text" 2>"$WORK/err"
grep -Eq '^guesses  [0-9]+ of [0-9]+ right, [0-9.]+ tokens a step with guesses; guessing ahead: 2, as asked for$' "$WORK/err" ||
	die 'no statistics of the guesses'
expect_fail 1 "$WORK/glm has no MTP layer to guess tokens with" coli-engine run "$WORK/glm" --prompt-ids '5 6' --draft 2
expect_fail 2 '[-]-draft, if it is neither auto nor off, takes a number from 1 to 15' coli-engine run "$WORK/tale" -p x --draft 16
expect_fail 2 '[-]-draft, if it is neither auto nor off, takes a number from 1 to 15' coli-engine run "$WORK/tale" -p x --draft some

section 'an expert of the MTP layer that cannot be read ends the run in a sentence'
rm -r "$WORK/ends/experts/006"
coli-engine run "$WORK/ends" -p 'Once upon a time' -n 40 --draft off >/dev/null 2>&1 || die 'it is needed without guesses'
expect_fail 1 "expert $WORK/ends/experts/006/[0-9]+ cannot be read: No such file" \
	bash -c 'coli-engine run "$1" -p "Once upon a time" -n 40 --draft 2 --json' bash "$WORK/ends"
