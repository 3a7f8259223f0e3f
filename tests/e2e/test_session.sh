#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# coli-engine run --session: the same tokens and bits as a run that begins a session wherever the prompt
# leaves it (and as one without, but for long prompts), kill -9 at any moment, Ctrl-C, two processes, a torn file, and what is refused. The file's
# format byte by byte: test_session.c of the unit tests.
. "$(dirname "$0")/../lib.sh"

tale=$TEST_DATA/tale-moe
D=$WORK/tale
G=$WORK/glm
S=$WORK/session
PROMPT='Once upon a time there was a king'
ROUNDS=${KILL_ROUNDS:-6}
RANDOM=${KILL_SEED:=$((RANDOM))}
echo "KILL_SEED=$KILL_SEED"

plain_folder "$tale" "$D"
plain_folder "$TEST_DATA/glm-s" "$G" --bits 32 --dense-bits 32
coli-engine tokenize "$D" <"$tale/held-out.txt" | cut -d' ' -f1-900 >"$WORK/long"

# ids A B: tokens A to B of a long text, counted from 1.
ids()
{
	cut -d' ' -f"$1-$2" "$WORK/long"
}

# bits FILE: what must not differ of a --json report.
bits()
{
	python3 -c 'import json, sys; o = json.load(open(sys.argv[1])); print(o["ids"], o["logits"])' "$1"
}

# same RESTORED DIR IDS [options]: with the session and without, and that so many tokens come from it.
same()
{
	local want=$1 dir=$2 prompt=$3 got
	shift 3
	coli-engine run "$dir" --prompt-ids "$prompt" --json --logits -n 12 "$@" >"$WORK/fresh"
	coli-engine run "$dir" --prompt-ids "$prompt" --json --logits -n 12 "$@" --session "$S" >"$WORK/got"
	cmp <(bits "$WORK/fresh") <(bits "$WORK/got") || die "other bits: $want $*"
	got=$(json_get "$WORK/got" session_restored)
	[ "$got" = "$want" ] || die "$got tokens were restored, not $want"
	[ "$(json_get "$WORK/fresh" session_restored)" = null ]
}

section 'the same bits: longer, the same, shorter, another end'
for options in '' '--kv bf16 --activations 32 --chunk 7 --threads 1'; do
	rm -f "$S"
	# shellcheck disable=SC2086
	{
		same 0 "$D" "$(ids 1 60)" $options
		same 59 "$D" "$(ids 1 100)" $options
		same 99 "$D" "$(ids 1 100)" $options
		same 39 "$D" "$(ids 1 40) $(ids 300 340)" $options
		same 80 "$D" "$(ids 1 40) $(ids 300 360)" $options
		same 29 "$D" "$(ids 1 30)" $options
		same 0 "$D" "$(ids 200 220)" $options
	}
done

section 'what the model said is part of the session'
rm -f "$S"
coli-engine run "$D" -p "$PROMPT" -n 30 --json --session "$S" >"$WORK/j"
said=$(python3 -c 'import json, sys; o = json.load(open(sys.argv[1])); print(*o["prompt_ids"], *o["ids"])' "$WORK/j")
same $((8 + 29 - 1)) "$D" "$said $(ids 1 20)"

# same_long DIR IDS: as a run that begins a session, which does not take the other form of attention.
same_long()
{
	rm -f "$WORK/new"
	coli-engine run "$1" --prompt-ids "$2" --json --logits -n 12 --session "$WORK/new" >"$WORK/fresh"
	coli-engine run "$1" --prompt-ids "$2" --json --logits -n 12 --session "$S" >"$WORK/got"
	cmp <(bits "$WORK/fresh") <(bits "$WORK/got") || die "other bits: $(wc -w <<<"$2") tokens"
}

section 'long prompts'
rm -f "$S"
same 0 "$D" "$(ids 1 250)"
same_long "$D" "$(ids 1 290)"
same_long "$D" "$(ids 1 700)"
[ "$(json_get "$WORK/got" session_restored)" = 289 ]
# Without a session they are close, and no more; the same bits with any chunk and threads.
ask()
{
	coli-engine run "$D" --prompt-ids "$(ids 1 700)" --json --logits -n 12 "$@"
}

# far FILE FILE BOUND: the logits are not the same, and no further from each other.
far()
{
	python3 - "$@" <<-'EOF'
		import json, math, sys
		a, b = (json.load(open(f))["logits"] for f in sys.argv[1:3])
		far = math.sqrt(sum((x - y) ** 2 for x, y in zip(a, b)) / sum(x * x for x in a))
		print(f"another form of attention: relative difference {far:.1e}")
		assert 0 < far < float(sys.argv[3]), far
	EOF
}
ask >"$WORK/fresh"
far "$WORK/fresh" "$WORK/got" 0.02
ask --chunk 37 --threads 1 >"$WORK/got"
cmp <(bits "$WORK/fresh") <(bits "$WORK/got")
ask --activations 32 >"$WORK/fresh"
rm "$WORK/new"
ask --activations 32 --session "$WORK/new" >"$WORK/got"
far "$WORK/fresh" "$WORK/got" 1e-5
[ "$(json_get "$WORK/fresh" ids)" = "$(json_get "$WORK/got" ids)" ]

section 'ties of short contexts, on the way past 512 tokens and back'
rm -f "$S"
same 0 "$G" "$(ids 1 150)"
same_long "$G" "$(ids 1 300)"
if [ -z "${SANITIZE:-}" ]; then # they make it slow
	for n in 505 700 400 512 513; do
		same_long "$G" "$(ids 1 $n)"
	done
	[ "$(json_get "$WORK/got" session_restored)" = 511 ]
fi

section 'it is told'
rm -f "$S"
coli-engine run "$D" --prompt-ids "$(ids 1 50)" -n 1 --session "$S" >/dev/null 2>"$WORK/err"
grep -q '^session: 0 of 50 prompt tokens restored$' "$WORK/err"
coli-engine run "$D" --prompt-ids "$(ids 1 90)" -n 1 --session "$S" >/dev/null 2>"$WORK/err"
grep -q '^session: 49 of 90 prompt tokens restored$' "$WORK/err"
grep -q '^prompt   41 tokens' "$WORK/err"
size=$(stat -c %s "$S")
truncate -s -5 "$S"
coli-engine run "$D" --prompt-ids "$(ids 1 90)" -n 1 --session "$S" >/dev/null 2>"$WORK/err"
grep -Eq "^session: the last [0-9.]+ kB of $S were not written whole or are damaged, and are left out$" "$WORK/err"
[ "$(stat -c %s "$S")" = "$size" ] || die 'the torn end was not written anew'
coli-engine run "$D" --prompt-ids "$(ids 1 90)" -n 4 -q --session "$S" >/dev/null 2>"$WORK/err"
[ ! -s "$WORK/err" ] || die '--quiet is not'

section 'what is refused, and left as it is'
cp "$S" "$WORK/copy"
expect_fail 1 "session $S was made with --kv f32" coli-engine run "$D" -p x --kv bf16 --session "$S" -q
expect_fail 1 "session $S was made with --activations 8" coli-engine run "$D" -p x --activations 32 --session "$S" -q
expect_fail 1 "session $S belongs to another model than that in $G" coli-engine run "$G" --prompt-ids 1 --session "$S" -q
expect_fail 1 "$WORK/fresh is no session of coli-engine" coli-engine run "$D" -p x --session "$WORK/fresh" -q
expect_fail 1 "session $WORK/nowhere/s cannot be opened: No such file" coli-engine run "$D" -p x --session "$WORK/nowhere/s"
expect_fail 1 'not in the vocabulary' coli-engine run "$D" --prompt-ids "$(ids 1 50) 99999" --session "$S" --json
expect_fail 2 'session needs a value' coli-engine run "$D" -p x --session
cp -r "$D" "$WORK/other"
for e in "$WORK/other/experts"/*/*; do # weights that have the same shape
	printf '\x12\x34\x56' | dd of="$e" bs=1 seek=100 conv=notrunc status=none
done
expect_fail 1 'with other experts, or on a processor or by a version' \
	coli-engine run "$WORK/other" --prompt-ids "$(ids 1 90)" --session "$S" -q --json
rm -r "$WORK/other"
cmp "$S" "$WORK/copy"

section 'no standard files: nothing but the session is written to it'
for closed in '>&-' '2>&-' '<&- >&- 2>&-'; do
	cp "$WORK/copy" "$S"
	status=0
	eval "coli-engine run \"\$D\" --prompt-ids \"\$(ids 1 90)\" -n 4 --session \"\$S\" $closed" >"$WORK/text" 2>"$WORK/err" || status=$?
	case $closed in
	'2>&-') [ $status = 0 ] || die "$closed: ended with $status" ;;
	*) [ $status = 1 ] || die "$closed: ended with $status" ;;
	esac
	same 89 "$D" "$(ids 1 90)"
done

section 'a drive that is full'
# full IDS: a run that has no room for them
full()
(
	ulimit -f $(($(stat -c %s "$S") / 1024 + 1))
	trap '' XFSZ
	expect_fail 1 "cannot be appended to the session $S" coli-engine run "$D" --prompt-ids "$1" --json --session "$S"
)
rm "$S"
coli-engine run "$D" --prompt-ids "$(ids 1 90)" -n 0 -q --chunk 25 --session "$S" >"$WORK/text"
cp "$S" "$WORK/copy"
full "$(ids 1 200)"
cmp "$S" "$WORK/copy"
full "$(ids 1 40) $(ids 300 700)"
cmp <(head -c "$(stat -c %s "$S")" "$WORK/copy") "$S" || die 'something was written that is not whole'
same 39 "$D" "$(ids 1 40) $(ids 300 340)"

section 'a talk that is cut back: so is the file'
rm "$S"
coli-engine run "$D" --prompt-ids "$(ids 1 80)" -n 0 -q --session "$S" >"$WORK/text"
little=$(stat -c %s "$S")
coli-engine run "$D" --prompt-ids "$(ids 1 900)" -n 0 -q --session "$S" >"$WORK/text"
[ "$(stat -c %s "$S")" -gt $((10 * little)) ] || die 'the file did not grow'
for i in 1 2 3; do
	same 79 "$D" "$(ids 1 80) $(ids $((100 * i)) $((100 * i + 20)))"
	[ "$(stat -c %s "$S")" -lt $((2 * little)) ] || die "it still has $(stat -c %s "$S") bytes"
done
same 100 "$D" "$(ids 1 80) $(ids 300 330)" # all that both have

section 'two processes'
# wait_for_bytes FILE N: until it has so many.
wait_for_bytes()
{
	for _ in $(seq 300); do
		[ "$(stat -c %s "$1" 2>/dev/null || echo 0)" -ge "$2" ] && return
		sleep 0.1
	done
	die "$1 does not grow"
}
rm -f "$S"
env --default-signal=INT coli-engine run "$D" -p "$PROMPT" -n 1900 --temp 1 --seed 1 --json --session "$S" >"$WORK/j" &
pid=$!
wait_for_bytes "$S" 65
expect_fail 1 "session $S is in use by another process" coli-engine run "$D" -p x --session "$S" -q

section 'Ctrl-C keeps what was made'
kill -INT $pid
status=0
wait $pid || status=$?
if [ $status -eq 0 ]; then
	echo 'it was done before it was interrupted'
else
	[ $status = 130 ] || die "ended with $status"
	[ "$(json_get "$WORK/j" stop)" = interrupted ]
fi
said=$(python3 -c 'import json, sys; o = json.load(open(sys.argv[1])); print(*o["prompt_ids"], *o["ids"])' "$WORK/j")
n=$(wc -w <<<"$said")
coli-engine run "$D" --prompt-ids "$said" -n 1 --json --session "$S" >"$WORK/got"
[ "$(json_get "$WORK/got" session_restored)" -ge $((n - 2)) ] || die 'the end is missing'

# wait_for_text: until the run in the background has shown some.
wait_for_text()
{
	for _ in $(seq 300); do
		[ -s "$WORK/text" ] && return
		sleep 0.05
	done
	die 'no text came'
}

section 'Ctrl-C after the end changes nothing'
rm -f "$S" "$WORK/text"
# After the only token the limits of the machine are measured for some tenths of a second.
env --default-signal=INT coli-engine run "$D" -p "$PROMPT" -n 1 --profile --session "$S" >"$WORK/text" 2>"$WORK/err" &
pid=$!
wait_for_text
kill -INT $pid || true
wait $pid || die "ended with $?"
grep -q '^made     1 tokens .* as many as asked for' "$WORK/err"

section 'the second one ends it, whichever it is'
rm -f "$S" "$WORK/text"
env --default-signal=INT coli-engine run "$D" -p "$PROMPT" -n 1900 --temp 1 --seed 1 --session "$S" >"$WORK/text" 2>"$WORK/err" &
pid=$!
wait_for_text
kill -STOP $pid
kill -INT $pid
kill -TERM $pid
kill -CONT $pid
status=0
wait $pid || status=$?
[ $status = 130 ] || [ $status = 143 ] || die "ended with $status"
! grep -q '^made ' "$WORK/err" || die 'it went on to its end'

section "kill -9 in $ROUNDS rounds"
# The whole: a prompt in many chunks and some text. What each round leaves is gone on with; by turns with
# a prompt that leaves it in the middle.
prompts=("$(ids 1 600)" "$(ids 1 300) $(ids 601 900)")
# With EXEC=exec, in the background, it is the process itself.
run()
{
	${EXEC:-} coli-engine run "$D" --prompt-ids "$prompt" -n 400 --chunk 25 --json --logits "$@"
}
for which in 1 0; do
	prompt=${prompts[which]}
	rm -f "$WORK/new"
	run --session "$WORK/new" >"$WORK/fresh.$which"
done
rm -f "$S"
start=${EPOCHREALTIME/[.,]/}
run --session "$S" >"$WORK/got"
ms=$(((${EPOCHREALTIME/[.,]/} - start) / 1000))
cmp <(bits "$WORK/fresh.0") <(bits "$WORK/got")
most=0
for ((i = 0; i < ROUNDS; i++)); do
	which=$((i % 2)) least=0
	prompt=${prompts[which]}
	((i % 3)) || rm -f "$S"
	[ ! -e "$S" ] || least=299 # of the prompt before; nothing that both share is ever lost
	EXEC='exec' run --session "$S" >"$WORK/got" &
	pid=$!
	nap=$((RANDOM % ms))
	sleep "$((nap / 1000)).$(printf %03d $((nap % 1000)))"
	kill -KILL $pid 2>/dev/null || true
	wait $pid 2>/dev/null || true
	[ -e "$S" ] || continue
	cp "$S" "$WORK/left"
	run --session "$S" >"$WORK/got"
	cmp <(bits "$WORK/fresh.$which") <(bits "$WORK/got") || die "round $i, killed after $nap ms: other bits"
	restored=$(json_get "$WORK/got" session_restored)
	[ "$restored" -ge $least ] || die "round $i, killed after $nap ms: only $restored tokens were restored"
	most=$((restored > most ? restored : most))
	# It is killed while it writes, too: cut anywhere.
	truncate -s $((RANDOM * RANDOM % ($(stat -c %s "$WORK/left") + 1))) "$WORK/left"
	mv "$WORK/left" "$S"
	run --session "$S" >"$WORK/got"
	cmp <(bits "$WORK/fresh.$which") <(bits "$WORK/got") || die "round $i: other bits after a cut"
done
[ $most -gt 0 ] || die 'no round restored anything'
echo "at most $most tokens were restored"
