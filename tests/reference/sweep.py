# SPDX-License-Identifier: Apache-2.0
"""What the sweeps share: random checkpoints, what the reference says of them, and what the engine
makes of them.

`make` needs what make_family_oracle.py needs. A number always gives the same checkpoint. `check`
needs the programs: it packs each checkpoint at full width and compares logits and greedy tokens
with the reference's, then the engine with itself, to the bit: other threads and chunks, gone on
with from a session, speculation, and the mount. It prints a line a checkpoint.
"""

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

NEW_TOKENS = 8
CLOSE = 1e-4  # of the largest logit


# --- the reference


def best_case(model, shaken, length, g):
    """Of a few prompts the one that hangs least on the last bits."""
    import torch
    from oracle import logits_after, short

    best = None
    for _ in range(4):
        prompt = torch.randint(0, 290, (length,), generator=g).tolist()
        ids, margins, noise = list(prompt), [], 0.0
        for _ in range(NEW_TOKENS):
            logits = logits_after(model, ids)
            if len(ids) == length:
                first = logits
            if len(ids) < length + 2:
                noise = max(noise, float((logits_after(shaken, ids) - logits).abs().max()))
            two = logits[:300].topk(2)
            margins.append(float(two.values[0] - two.values[1]))
            ids.append(int(two.indices[0]))
            if ids[-1] == 299:
                break
        case = dict(prompt=prompt, greedy=ids[length:], margin=short(margins), noise=noise,
                    last_logits=short(first.tolist()))
        if best is None or noise < best["noise"]:
            best = case
        if noise < 2e-5 * float(first.abs().max()) and min(margins) > 1e-3:
            break
    return best


def say(model, c, how, lengths, number, out):
    """Writes out/expected.json: what the model says after prompts of these lengths."""
    import torch
    from oracle import noisy

    g = torch.Generator().manual_seed(number)
    shaken = noisy(model, 1)
    cases = [best_case(model, shaken, n, g) for n in lengths]
    with open(os.path.join(out, "expected.json"), "w") as f:
        json.dump(dict(config=c, how=how, cases=cases), f)
    print(out, [len(x["prompt"]) for x in cases], flush=True)


# --- the engine


class Bad(Exception):
    pass


def run(*args):
    p = subprocess.run(args, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if p.returncode:
        name = os.path.basename(args[0])
        raise Bad(f"{name} ended with {p.returncode}: {p.stderr.strip()[-400:]}")
    return p.stdout


def engine(build, where, prompt, n, *options):
    ids = " ".join(map(str, prompt))
    what = ["--prompt-ids", ids, "-n", str(n), "--logits", "--json"]
    return json.loads(run(build + "/coli-engine", "run", where, *what, *options))


def against_reference(case, out):
    """A sentence, or None."""
    scale = max(map(abs, case["last_logits"])) or 1
    bound = max(CLOSE * scale, 10 * case["noise"])
    off = max(abs(a - b) for a, b in zip(out["logits"], case["last_logits"]))
    n = len(case["prompt"])
    if len(out["logits"]) != len(case["last_logits"]) or not off <= bound:
        noise = case["noise"] / scale
        return f"logits after {n} tokens off by {off / scale:.1e} (noise {noise:.1e})"
    for a, b, margin in zip(out["ids"], case["greedy"], case["margin"]):
        if a != b:
            close = margin < bound
            return None if close else f"after {n} tokens {out['ids']}, not {case['greedy']}"
    return None


class Mount:
    """Of a store or a GGUF file, in a new folder under work."""

    def __init__(self, build, what, work, *options):
        self.at = tempfile.mkdtemp(dir=work)
        self.log = tempfile.TemporaryFile("w+")
        self.daemon = subprocess.Popen([build + "/expertfs", "-f", *options, what, self.at],
                                       stderr=self.log, stdout=self.log)
        while not os.path.ismount(self.at):
            if self.daemon.poll() is not None:
                self.log.seek(0)
                raise Bad(f"not mounted: {self.log.read().strip()[-300:]}")
            time.sleep(0.02)

    def __enter__(self):
        return self.at

    def __exit__(self, *_):
        subprocess.run(["umount", self.at], check=False)
        self.daemon.wait(120)


def itself(build, r, plain, store, work, prompt, drafts):
    """(name, run, what it must equal) of runs that may differ in no bit."""
    n = NEW_TOKENS
    base = engine(build, plain, prompt, n, "--draft", "off")
    for _ in range(3):
        o = ["--threads", r.choice("123"), "--chunk", r.choice(["1", "3", "64", "255"])]
        o += ["--draft", r.choice("135") if drafts and r.random() < 0.8 else "off"]
        yield " ".join(o), engine(build, plain, prompt, n, *o), base
    s = ["--session", os.path.join(work, "s"), "--draft", "off"]
    whole = engine(build, plain, prompt, n, "--draft", "off", "--session",
                   os.path.join(work, "whole"))
    engine(build, plain, prompt[: r.randint(1, len(prompt))], 2, *s)
    yield "session", engine(build, plain, prompt, n, *s, "--chunk", r.choice(["2", "300"])), whole
    yield "session again", engine(build, plain, prompt, n, *s), whole
    if r.random() < 0.3:
        with Mount(build, store, work, "--memory", "8M") as at:
            yield "mount", engine(build, at, prompt, n, "--draft", "off"), base


def check(build, source, work):
    with open(os.path.join(source, "expected.json"), encoding="utf-8") as f:
        expected = json.load(f)
    r = random.Random(source)
    how, form = expected["how"], expected["how"].get("form")
    in16 = how["dtype"] == "bfloat16" and form != "fp8"  # whose numbers have a scale as well
    bits = "16" if in16 and r.random() < 0.5 else "32"
    pack, exact = ["--bits", bits, "--dense-bits", bits], []
    if form == "mxfp4" and r.random() < 0.5:  # kept as it is
        pack, exact = pack[2:], ["--activations", "32"]
    store, plain = os.path.join(work, "store"), os.path.join(work, "plain")
    run(build + "/coli-pack", *pack, source, store)
    run(build + "/expertctl", "export", store, plain)
    bad, worst = [], 0.0
    for case in expected["cases"]:
        out = engine(build, plain, case["prompt"], len(case["greedy"]), "--draft", "off", *exact)
        bad.append(against_reference(case, out))
        scale = max(map(abs, case["last_logits"])) or 1
        off = [abs(a - b) / scale for a, b in zip(out["logits"], case["last_logits"])]
        worst = max(worst, *off)
    drafts = how["mtp"] > 0
    for case in expected["cases"][-2:]:
        for name, got, want in itself(build, r, plain, store, work, case["prompt"], drafts):
            if any(got[k] != want[k] for k in ("ids", "logits")):
                bad.append(f"{name}: other bits after {len(case['prompt'])} tokens")
        for name in ("s", "whole"):
            os.remove(os.path.join(work, name))
    bad = [x for x in bad if x]
    print(source, "DIFFERENT: " + "; ".join(bad) if bad else "same", f"{worst:.1e}", flush=True)
    return not bad


def main(doc, families, make, args, check=check):
    """make(family, number, folder) makes a model with what is expected of it, check(build, folder,
    work) says whether the engine agrees."""
    if len(args) == 5 and args[0] == "make" and args[1] in families:
        for number in range(int(args[2]), int(args[2]) + int(args[3])):
            make(args[1], number, os.path.join(args[4], f"{args[1]}-{number}"))
        return
    if len(args) < 3 or args[0] != "check":
        sys.exit(doc)
    failed = 0
    for source in args[2:]:
        work = tempfile.mkdtemp()
        try:
            failed += not check(args[1], source, work)
        except Bad as e:
            print(source, "FAILED:", e, flush=True)
            failed += 1
        finally:
            shutil.rmtree(work)
    sys.exit(failed and f"{failed} of {len(args) - 2} models differ")


