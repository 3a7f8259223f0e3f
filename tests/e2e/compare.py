#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares what `coli-engine --json` printed with what the reference says.

    compare.py prompts EXPECTED [--text]            the prompts of all cases, a line each: as ids or
                                                    as text
    compare.py logits EXPECTED CASE OUT TOLERANCE [SETTING]
            logits after the prompt; SETTING, say 4/8/64: bits, dense bits, group of the store
    compare.py greedy EXPECTED CASE OUT [--close MARGIN]
            same prompt ids, same ids; with --close a difference may begin where the reference's
            margin is below MARGIN
    compare.py both EXPECTED CASE OUT TOLERANCE     logits, then greedy
    compare.py nll EXPECTED OUT PERCENT [SETTING]
            same number of tokens, loss not off by more than PERCENT

EXPECTED is an expected.json under tests/data (cases in "cases", or in "greedy" for tale-moe).
Prints one line of what was compared; a difference is one sentence on stderr and exit status 1.
"""

import json
import math
import sys


class Different(Exception):
    pass


def load(path):
    try:
        with open(path, encoding="utf-8") as f:
            return json.load(f)
    except (OSError, ValueError) as e:
        raise Different(f"{path}: {e}") from None


def cases(expected):
    return expected["cases"] if "cases" in expected else expected["greedy"]


def prompt_ids(case):
    return case.get("prompt_ids", case["prompt"])


def prompt(case, text):
    if not text:
        return " ".join(map(str, prompt_ids(case)))
    if "\n" in case["prompt"]:
        raise Different("a prompt has several lines")
    return case["prompt"]


def finite(x):
    return isinstance(x, (int, float)) and not isinstance(x, bool) and math.isfinite(x)


def compare_logits(case, out, tolerance, setting=None):
    want = case["quantised"][setting] if setting else case["last_logits"]
    got = out.get("logits")
    if out.get("prompt_ids") != prompt_ids(case):
        raise Different(f"prompt_ids are {str(out.get('prompt_ids'))[:200]}")
    if not isinstance(got, list):
        raise Different("there are no logits")
    if len(got) != len(want):
        raise Different(f"{len(got)} logits, not {len(want)}")
    if not all(map(finite, got)):
        raise Different("a logit is not a finite number")
    worst, at = max((abs(g - w), i) for i, (g, w) in enumerate(zip(got, want)))
    length = len(prompt_ids(case))
    line = f"largest difference {worst:.2e} of {len(want)} logits after {length} tokens"
    if not worst <= tolerance:
        raise Different(f"{line}: logit {at} is {got[at]:.6f}, the reference says {want[at]:.6f}")
    return line


def compare_greedy(case, out, close=0.0):
    want, got = case["greedy"], out.get("ids")
    if out.get("prompt_ids") != prompt_ids(case):
        raise Different(
            f"prompt_ids are {str(out.get('prompt_ids'))[:200]}, "
            f"the reference says {str(prompt_ids(case))[:200]}"
        )
    if not isinstance(got, list):
        raise Different("there are no ids")
    same = next((i for i, (g, w) in enumerate(zip(got, want)) if g != w), min(len(got), len(want)))
    if got == want:
        return f"{len(want)} greedy tokens identical after {len(prompt_ids(case))}"
    margin = case["margin"][same] if same < len(want) else math.inf
    line = f"{same} of {len(want)} greedy tokens identical"
    if same < len(got) and margin < close:
        return f"{line}; there the reference's margin is {margin:.5f}, below {close}"
    raise Different(
        f"{line}, then {got[same:same + 3]}, the reference says {want[same:same + 3]} "
        f"(its margin there: {margin:.5f})"
    )


def compare_nll(expected, out, percent, setting=None):
    held = expected["held_out"]
    want = held[setting] if setting else held
    # tale-bits.json has but one number, and calls it tokens.
    tokens = want.get("predicted", want["tokens"])
    if out.get("predicted") != tokens:
        raise Different(f"{out.get('predicted')} tokens predicted, {tokens} expected")
    if not finite(out.get("nll")) or not finite(out.get("ppl")):
        raise Different(f"nll {out.get('nll')} and ppl {out.get('ppl')} are not both numbers")
    if abs(out["ppl"] / math.exp(out["nll"]) - 1) > 1e-4:
        raise Different(f"ppl {out['ppl']} is not exp(nll {out['nll']})")
    off = 100 * (out["nll"] / want["nll"] - 1)
    line = f"{out['nll']:.5f} nats a token over {tokens} tokens"
    line += f", the reference says {want['nll']:.5f}: {off:+.3f} %"
    if not abs(off) <= percent:
        raise Different(f"{line}, more than {percent} %")
    return line


def main(args):
    what, expected = args[0], load(args[1])
    if what == "prompts":
        return "\n".join(prompt(case, args[2:] == ["--text"]) for case in cases(expected))
    if what == "nll":
        return compare_nll(expected, load(args[2]), float(args[3]), *args[4:])
    case = cases(expected)[int(args[2])]
    if what == "logits":
        return compare_logits(case, load(args[3]), float(args[4]), *args[5:])
    if what == "greedy" and (len(args) == 4 or args[4] == "--close"):
        return compare_greedy(case, load(args[3]), *map(float, args[5:]))
    if what == "both":
        out = load(args[3])
        return f"{compare_logits(case, out, float(args[4]))}; {compare_greedy(case, out)}"
    raise IndexError


if __name__ == "__main__":
    try:
        print(main(sys.argv[1:]))
    except Different as e:
        sys.exit(f"compare.py {' '.join(sys.argv[1:])}: {e}")
    except (IndexError, KeyError, TypeError) as e:
        print(__doc__, file=sys.stderr)
        print(f"compare.py: {type(e).__name__}: {e}", file=sys.stderr)
        sys.exit(2)
