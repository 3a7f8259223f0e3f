#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/data/gguf-families and tests/data/gguf-types: GGUF files by llama.cpp's own converter,
and what llama.cpp computes of them.

    make_llama_golden.py families CHECKPOINTS OUT      CHECKPOINTS/NAME of make_family_oracle.py
    make_llama_golden.py types TOKENIZER.json OUT

Needs what make_family_oracle.py does, and llama.cpp-tools and python3-gguf 0.7.0 of Debian sid. First
build llama_logits.c beside this file: cc -o llama_logits llama_logits.c -lllama -lggml.

families: the files are converted as bf16, which is what the checkpoints are; llama.cpp computes of a
conversion as f32, the same numbers, since it rounds activations to the type of bf16 weights. The only
thing changed in the converter is that it takes any tokenizer. deepseek2-lite has no llama.json: llama.cpp
knows that model by its 27 layers.
types: TYPE.json is of the file that tests/e2e/make_typed_gguf.py makes, TYPE-as-f32.json of what
llama-quantize makes of it, the same numbers as f32.
"""

import json
import os
import runpy
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
LLAMA = "/usr/share/llama.cpp/llama.cpp-tools"
CONVERT = "/usr/share/doc/llama.cpp-tools/scripts/convert_hf_to_gguf.py"
REFERENCE = "llama.cpp 0.7.0 (Debian 1:0.7.0+dfsg-2), processor, one thread, f32 keys and values"
TYPES = ("f32 f16 bf16 q8_0 q4_0 q4_1 q5_0 q5_1 q2_k q3_k q4_k q5_k q6_k iq4_nl iq4_xs "
         "mxfp4 iq1_s iq1_m iq2_xxs iq2_xs iq2_s iq3_xxs iq3_s tq1_0 tq2_0").split()
PROMPTS = [[7], [11, 250, 33, 4, 90, 120, 7, 8, 201],
           [5, 6, 7, 8, 9, 200, 100, 77, 13, 26, 99, 150, 222, 3, 44, 60, 61, 62, 63, 64, 90, 12,
            250, 251, 17, 80, 33, 190, 41, 2]]


def logits(model, prompts, out, note=""):
    text = "".join(" ".join(map(str, p)) + "\n" for p in prompts)
    said = subprocess.run([HERE + "/llama_logits", model, "16"], input=text, text=True, check=True,
                          stdout=subprocess.PIPE).stdout
    cases = [dict(prompt=p, **json.loads(x)) for p, x in zip(prompts, said.splitlines())]
    assert len(cases) == len(prompts)
    with open(out, "w") as f:
        json.dump(dict(reference=REFERENCE + note, cases=cases), f)
        f.write("\n")


def any_tokenizer():
    sys.path.insert(0, LLAMA)
    import importlib

    import transformers
    transformers.AutoTokenizer = transformers.PreTrainedTokenizerFast
    base = importlib.import_module("conversion.base")
    for m in ("qwen", "llama", "olmo", "deepseek", "glm", "gpt_oss"):
        importlib.import_module("conversion." + m)

    def below(c):
        for k in c.__subclasses__():
            yield k
            yield from below(k)

    base.TextModel.get_vocab_base_pre = lambda self, tokenizer: "glm4"
    for k in below(base.TextModel):
        k.set_vocab = lambda self: self._set_vocab_gpt2()


def convert(checkpoint, kind, out):
    sys.argv = ["convert", "--outtype", kind, "--outfile", out, checkpoint]
    runpy.run_path(CONVERT, run_name="__main__")


def families(checkpoints, out):
    any_tokenizer()
    for name in sorted(os.listdir(checkpoints)):
        source, to = os.path.join(checkpoints, name), os.path.join(out, name)
        os.makedirs(to, exist_ok=True)
        shutil.copy(source + "/expected.json", to)
        convert(source, "bf16", to + "/model.gguf")
        if name == "deepseek2-lite":
            continue
        convert(source, "f32", to + "/f32.gguf")
        with open(source + "/expected.json", encoding="utf-8") as f:
            prompts = [c["prompt"] for c in json.load(f)["cases"]]
        logits(to + "/f32.gguf", prompts, to + "/llama.json", ", the same weights as f32")
        os.remove(to + "/f32.gguf")


def types(tokenizer, out):
    os.makedirs(out, exist_ok=True)
    made, as_f32 = out + "/made.gguf", out + "/as-f32.gguf"
    for kind in TYPES:
        subprocess.run([sys.executable, HERE + "/../e2e/make_typed_gguf.py", kind, tokenizer, made],
                       check=True)
        logits(made, PROMPTS, f"{out}/{kind}.json")
        subprocess.run(["llama-quantize", "--allow-requantize", made, as_f32, "f32", "1"], check=True)
        logits(as_f32, PROMPTS, f"{out}/{kind}-as-f32.json", ", the same numbers as f32")
    os.remove(made)
    os.remove(as_f32)


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] not in ("families", "types"):
        sys.exit(__doc__)
    (families if sys.argv[1] == "families" else types)(*sys.argv[2:])
