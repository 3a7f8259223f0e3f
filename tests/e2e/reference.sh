# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# What the tests of the engine against a reference share; sourced behind lib.sh. A test that calls check()
# ends with all_same.

compare()
{
	python3 "$ROOT/tests/e2e/compare.py" "$@"
}

# read_prompts EXPECTED LEAST [--text]: the prompts of its cases become prompts[]; so many there must be.
read_prompts()
{
	local expected=$1 least=$2
	shift 2
	compare prompts "$expected" "$@" >"$WORK/prompts" || die "there are no prompts in $expected"
	mapfile -t prompts <"$WORK/prompts"
	[ ${#prompts[@]} -ge "$least" ] || die "$expected holds ${#prompts[@]} cases"
}

# ask DIR OUT ARGUMENTS...: one thread if they do not say otherwise: the models are tiny, and the machine may have
# other work.
ask()
{
	local dir=$1 out=$2
	shift 2
	coli-engine run "$dir" --threads 1 --logits --json "$@" >"$out" 2>"$WORK/engine.log" </dev/null ||
		die "coli-engine run $dir ended with $?: $(tail -n 1 "$WORK/engine.log")"
}

# equal OUT OUT WHAT: tokens and logits of two runs, to the bit.
equal()
{
	local key
	for key in ids logits; do
		[ "$(json_get "$1" $key)" = "$(json_get "$2" $key)" ] || die "$3: other $key"
	done
}

failures=0

# check COMMAND...: a difference is shown, and counts; the test goes on.
check()
{
	local found
	if found=$("$@" 2>&1); then
		echo "   $found"
	else
		echo "   DIFFERENT: $found"
		failures=$((failures + 1))
	fi
}

all_same()
{
	[ $failures -eq 0 ] || die "$failures comparisons differ"
}
