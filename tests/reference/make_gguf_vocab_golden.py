#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tokenizers as GGUF files have them, with the ids that they give: tests/data/gguf-vocab/.

    make_gguf_vocab_golden.py VOCAB_DIR HF_DIR OUT_DIR

VOCAB_DIR holds ggml-vocab-NAME.gguf and .gguf.inp and .out of llama.cpp's models/ (MIT); the
.out files are llama.cpp's expected ids. HF_DIR holds NAME/tokenizer.json as for
make_tokenizer_golden.py: of models whose vocabulary GGUF is not at hand, the same arrays are made
from there, as a converter would, and the expected ids are llama.cpp's .out files or those of the
Hugging Face library. Needs python3-gguf and python3-tokenizers (Debian sid).

Only what can play a part in these texts is kept, by id: tokens whose text occurs in one of them,
tokens of single bytes, control and user-defined tokens (of long lists the first few).
"""

import json
import os
import sys

import gguf
import tokenizers

# falcon, starcoder and refact lack tokens of bytes that occur in UTF-8, so the engine refuses them.
FROM_GGUF = ["llama-spm", "phi-3", "gpt-2", "deepseek-llm", "deepseek-coder", "mpt"]
# name, folder of HF_DIR, tokenizer.ggml.pre, bos_token_id, whether llama.cpp has ids for it
FROM_HF = [
    ("qwen2", "qwen3", "qwen2", None, True),
    ("llama-bpe", "llama3", "llama-bpe", 128000, True),
    ("deepseek-v3", "deepseek_v3", "deepseek-v3", 0, False),
    ("gpt-4o", "gptoss", "gpt-4o", None, False),
]
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
KEYS = ("add_bos_token", "add_eos_token", "add_space_prefix", "bos_token_id", "eos_token_id")


def from_gguf(path):
    fields = gguf.GGUFReader(path).fields

    def value(key):
        field = fields.get("tokenizer.ggml." + key)
        return field.contents() if field else None

    tokens = value("tokens")
    scores = value("scores")
    types = value("token_type")
    out = {"model": value("model"), "pre": value("pre"), "merges": value("merges")}
    out |= {k: value(k) for k in KEYS}
    return out, dict(enumerate(tokens)), dict(enumerate(types)), scores


def from_hf(path, pre, bos):
    with open(path, encoding="utf-8") as f:
        hf = json.load(f)
    tokens = {i: s for s, i in hf["model"]["vocab"].items()}
    types = dict.fromkeys(tokens, NORMAL)
    for a in hf["added_tokens"]:
        tokens[a["id"]] = a["content"]
        types[a["id"]] = CONTROL if a["special"] else USER_DEFINED
    merges = [m if isinstance(m, str) else " ".join(m) for m in hf["model"]["merges"]]
    out = {"model": "gpt2", "pre": pre, "merges": merges} | dict.fromkeys(KEYS)
    out["bos_token_id"] = bos
    return out, tokens, types, None


def reduced(vocab, tokens, types, scores, texts):
    if vocab["model"] == "gpt2":
        level = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        forms = set(texts) | {tokenizers.normalizers.NFC().normalize_str(t) for t in texts}
        mapped = "\0".join(p for t in sorted(forms) for p, _ in level.pre_tokenize_str(t))
        always = set(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    else:
        mapped = "\0".join("▁" + t.replace(" ", "▁") for t in texts)
        always = set()
    kept, few = {}, 0
    for i, s in sorted(tokens.items()):
        if types[i] in (CONTROL, USER_DEFINED, UNKNOWN):
            few += 1
        keep = {NORMAL: s in always or s in mapped, BYTE: True, UNUSED: False}
        if keep.get(types[i], few <= 24 or any(s in t for t in texts)):
            kept[i] = s
    known = set(kept.values())
    if vocab["merges"]:
        pairs = [(m, m.replace(" ", "", 1) if m[0] != " " else m) for m in vocab["merges"]]
        vocab["merges"] = [m for m, whole in pairs if whole in known and whole in mapped]
    vocab["size"] = max(tokens) + 1
    vocab["tokens"] = {str(i): s for i, s in kept.items()}
    vocab["types"] = {str(i): int(types[i]) for i in kept if types[i] != NORMAL}
    vocab["scores"] = {str(i): float(scores[i]) for i in kept} if scores else None
    return vocab


def cases(path):
    with open(path + ".inp", encoding="utf-8", newline="") as f:
        texts = f.read().split("\n__ggml_vocab_test__\n")
    with open(path + ".out", encoding="utf-8") as f:
        ids = [[int(i) for i in line.split()] for line in f.read().split("\n")]
    return texts, ids[: len(texts)]


def write(path, data):
    with open(path, "w", encoding="utf-8") as f:
        json.dump(data, f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")


def main():
    vocab_dir, hf_dir, out_dir = sys.argv[1:]
    os.makedirs(out_dir, exist_ok=True)
    for name in FROM_GGUF:
        path = os.path.join(vocab_dir, f"ggml-vocab-{name}.gguf")
        texts, ids = cases(path)
        vocab = reduced(*from_gguf(path), texts)
        write(os.path.join(out_dir, name + ".json"), vocab | {"texts": texts, "ids": ids})
    for name, folder, pre, bos, has_ids in FROM_HF:
        path = os.path.join(hf_dir, folder, "tokenizer.json")
        texts, ids = cases(os.path.join(vocab_dir, f"ggml-vocab-{name if has_ids else 'gpt-2'}.gguf"))
        if not has_ids:
            t = tokenizers.Tokenizer.from_file(path)
            t.encode_special_tokens = True
            ids = [t.encode(text, add_special_tokens=False).ids for text in texts]
        vocab = reduced(*from_hf(path, pre, bos), texts)
        write(os.path.join(out_dir, name + ".json"), vocab | {"texts": texts, "ids": ids})


if __name__ == "__main__":
    main()
