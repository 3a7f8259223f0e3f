#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The harness itself: a harness that lets a failure pass makes every other test worthless. run.sh and
# lib.sh run here in a small tree of tests that pass, fail, are skipped, hang and leave things behind.
. "$(dirname "$0")/../lib.sh"

tree=$WORK/tree
mkdir -p "$tree/tests/e2e" "$tree/tests/unit" "$tree/build/tests"
cp "$ROOT/tests/run.sh" "$ROOT/tests/lib.sh" "$tree/tests"

# fake NAME: a test script with the body on stdin.
fake()
{
	{
		echo '#!/bin/bash'
		cat
	} >"$tree/tests/e2e/test_$1.sh"
	chmod +x "$tree/tests/e2e/test_$1.sh"
}

# run_fakes STATUS [ARGUMENTS]: the inner harness with its own settings; its output lies in $WORK/out.
run_fakes()
{
	local want=$1 got=0
	shift
	env -u BUILD -u TEST_DATA -u SANITIZE TMPDIR="$WORK" TEST_TIMEOUT=3 "$tree/tests/run.sh" "$@" \
		>"$WORK/out" 2>&1 || got=$?
	[ "$got" -eq "$want" ] || {
		cat "$WORK/out"
		die "run.sh $* ended with $got, not $want"
	}
}

says()
{
	grep -Eq -- "$1" "$WORK/out" || {
		cat "$WORK/out"
		die "run.sh does not say /$1/"
	}
}

last_line_is()
{
	[ "$(tail -n 1 "$WORK/out")" = "$1" ] || {
		cat "$WORK/out"
		die "the last line of run.sh is not \"$1\""
	}
}

section 'pass, fail, skip'
fake good <<<'. "$(dirname "$0")/../lib.sh"; [ -z "$(ls -A "$WORK")" ]; echo 1 >"$WORK/file"'
run_fakes 0
says '^ok test_good\.sh \([0-9]+\.[0-9] s\)$'
last_line_is '1 passed, 0 failed'
fake skipped <<<'. "$(dirname "$0")/../lib.sh"; echo first; skip "no such thing here"'
run_fakes 0
says '^skip test_skipped\.sh: no such thing here$'
last_line_is '1 passed, 0 failed, 1 skipped'
fake bad <<<'. "$(dirname "$0")/../lib.sh"; echo before; ls /no/such/file; echo after'
run_fakes 1
says '^FAIL test_bad\.sh \(exit status 2\)$'
says 'test_bad\.sh:2: failed with 2: ls /no/such/file$'
! grep -q after "$WORK/out" || die 'a test goes on after a failed command'
last_line_is '1 passed, 1 failed, 1 skipped'
run_fakes 0 good skip
last_line_is '1 passed, 0 failed, 1 skipped'
run_fakes 1 no_such_name
last_line_is '0 passed, 0 failed'
rm "$tree"/tests/e2e/*

section 'a unit test that was not built'
touch "$tree/tests/unit/test_absent.c"
run_fakes 1
says '^FAIL test_absent \(build/tests/test_absent is not there'
rm "$tree/tests/unit/test_absent.c"

section 'expect_fail'
prelude='. "$(dirname "$0")/../lib.sh"'
fake right <<<"$prelude; expect_fail 3 'the (file|amount)' sh -c 'echo the amount >&2; exit 3'"
fake status <<<"$prelude; expect_fail 1 '' sh -c 'echo x >&2; exit 2'"
fake success <<<"$prelude; expect_fail 1 '' sh -c 'echo x >&2'"
fake text <<<"$prelude; expect_fail 1 '^y' sh -c 'echo x >&2; exit 1'"
fake two <<<"$prelude; expect_fail 1 x sh -c 'echo x >&2; echo x >&2; exit 1'"
fake mute <<<"$prelude; expect_fail 1 '' sh -c 'exit 1'"
fake function <<<"$prelude; f() { echo x >&2; return 1; }; expect_fail 1 x f"
run_fakes 1
says '^ok test_right'
for name in status success text two mute function; do
	says "^FAIL test_$name"
done
last_line_is '1 passed, 6 failed'
rm "$tree"/tests/e2e/*

section 'a test that hangs, one that dies'
fake hangs <<<"$prelude; sleep 60"
fake dies <<<'kill -SEGV $$'
run_fakes 1
says '^FAIL test_hangs\.sh \(not done after 3 s\)$'
says '^FAIL test_dies\.sh \(exit status 139\)$'
last_line_is '0 passed, 2 failed'
rm "$tree"/tests/e2e/*

section 'a sanitizer report of a process in the background'
fake reports <<'END'
path=${ASAN_OPTIONS#*log_path=}
echo 'boom: leaked' >"${path%%:*}.77"
END
mkdir -p "$tree/build/sanitize"
got=0
env -u BUILD -u TEST_DATA SANITIZE=1 TMPDIR="$WORK" "$tree/tests/run.sh" >"$WORK/out" 2>&1 || got=$?
[ "$got" -eq 1 ] || die 'a sanitizer report passes'
says 'boom: leaked'
rm "$tree"/tests/e2e/*

section 'what is left running'
fake leaves <<<"setsid sleep 3333 </dev/null >/dev/null 2>&1 & echo \$! >$WORK/pid"
run_fakes 1
says '^FAIL test_leaves\.sh$'
says 'left running: process [0-9]+, sleep 3333'
! lib_running "$(cat "$WORK/pid")" || die 'what a test left running still runs'
# lib.sh ends the processes itself, so that a failing test leaves nothing either.
fake leaves <<<"$prelude; setsid sleep 3333 </dev/null & sleep 3333 & echo \$! >$WORK/pid; false"
run_fakes 1
says '^FAIL test_leaves\.sh \(exit status 1\)$'
! lib_running "$(cat "$WORK/pid")" || die 'what a test left running still runs'
! grep -q 'left running' "$WORK/out" || die 'lib.sh left a process to run.sh'
rm "$tree"/tests/e2e/*

section 'Ctrl-C'
fake slow <<<"$prelude; echo \$\$ >$WORK/pid; sleep 60"
rm -f "$WORK/pid"
env --default-signal=INT -u BUILD -u TEST_DATA -u SANITIZE TMPDIR="$WORK" \
	"$tree/tests/run.sh" >"$WORK/out" 2>&1 &
runner=$!
for ((i = 0; i < 100; i++)); do
	[ -s "$WORK/pid" ] && break
	sleep 0.1
done
kill -INT "$runner"
got=0
wait "$runner" || got=$?
[ "$got" -eq 130 ] || die "run.sh ended with $got after SIGINT"
! lib_running "$(cat "$WORK/pid")" || die 'the test runs on after Ctrl-C'
[ -z "$(find "$WORK" -name 'expertfs*' -print -quit)" ] || die 'Ctrl-C left a folder behind'
rm "$tree"/tests/e2e/*

section 'what is left mounted'
need_root
mkdir "$WORK/probe"
mount -t tmpfs none "$WORK/probe" 2>/dev/null || skip 'needs the right to mount (all else passed)'
umount "$WORK/probe"
fake mounts <<<'mkdir "$TMPDIR/a b"; mount -t tmpfs none "$TMPDIR/a b"'
run_fakes 1
says '^FAIL test_mounts\.sh$'
says 'left mounted: .*/a b$'
! grep -q "$WORK" /proc/self/mountinfo || die 'what a test left mounted still is'
fake mounts <<<"$prelude; mkdir \"\$WORK/m\"; mount -t tmpfs none \"\$WORK/m\""
run_fakes 0
last_line_is '1 passed, 0 failed'
! grep -q "$WORK" /proc/self/mountinfo || die 'lib.sh left a mount'
