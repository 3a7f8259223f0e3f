#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs the quick tests: the unit tests, $BUILD/tests/test_* of tests/unit/test_*.c, then
# tests/e2e/test_*.sh. Arguments select by name: `tests/run.sh size 'test_pol*'`.
#
# A test passes with exit status 0 and is skipped with 77, the last line of its output being the
# reason. Each has a private folder, which is its TMPDIR and its working directory, and a time limit
# (TEST_TIMEOUT seconds); its output goes to $BUILD/tests/logs/NAME.log. A test also fails if it
# leaves a process or a mount behind, if a sanitizer reported in any of its processes, or if the
# kernel complained meanwhile.
#
# SANITIZE=1 takes the programs from build/sanitize. The last line is `N passed, N failed`, with
# `, N skipped` if any was; the exit status is 1 if any failed or none ran.
set -uo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
SANITIZE=${SANITIZE:-}
BUILD=${BUILD:-build${SANITIZE:+/sanitize}}
case $BUILD in /*) ;; *) BUILD=$ROOT/$BUILD ;; esac
TEST_DATA=${TEST_DATA:-tests/data}
case $TEST_DATA in /*) ;; *) TEST_DATA=$ROOT/$TEST_DATA ;; esac
export BUILD TEST_DATA SANITIZE
# Programs of the tests that call make are not part of the make that called us.
unset MAKEFLAGS MFLAGS MAKELEVEL

# Instrumented programs take about three times as long.
limit=${TEST_TIMEOUT:-$([ -n "$SANITIZE" ] && echo 900 || echo 300)}
logs=$BUILD/tests/logs
mkdir -p "$logs" || exit 1
rm -f "$logs"/*
top=$(cd "$(mktemp -d "${TMPDIR:-/tmp}/expertfs-tests.XXXXXX")" && pwd -P) || exit 1
passed=0 failed=0 skipped=0
child=

# The processes that the test with this private folder has started and that still run: all have
# inherited its TMPDIR. Nothing of run.sh itself may have the folder in its environment.
processes_of()
{
	local pid state
	grep -Fzl -- "$1" /proc/[0-9]*/environ 2>/dev/null | while IFS=/ read -r _ _ pid _; do
		state=$(sed -n 's/^State:[[:space:]]*\(.\).*/\1/p' "/proc/$pid/status" 2>/dev/null)
		[ -n "$state" ] && [ "$state" != Z ] && [ "$pid" -ne $$ ] && echo "$pid"
	done
}

# The mount points below a folder, deepest first.
mounts_of()
{
	local point
	while read -r _ _ _ _ point _; do
		point=$(printf '%b' "${point//\\/\\0}")
		case $point in "$1"/*) echo "$point" ;; esac
	done </proc/self/mountinfo | sort -r
}

# Unmounts and ends what the test has left, says what that was.
sweep()
{
	local folder=$1 mnt pid i
	while read -r mnt; do
		echo "left mounted: $mnt"
		umount -l "$mnt" 2>/dev/null || fusermount3 -uz "$mnt" 2>/dev/null
	done < <(mounts_of "$folder")
	# Processes that are about to end may do so.
	for ((i = 0; i < 20; i++)); do
		[ -z "$(processes_of "$folder")" ] && break
		sleep 0.1
	done
	for pid in $(processes_of "$folder"); do
		echo "left running: process $pid, $(tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline")"
		kill -KILL "$pid" 2>/dev/null
	done
	for ((i = 0; i < 20; i++)); do
		[ -z "$(processes_of "$folder")" ] && break
		sleep 0.1
	done
	rm -rf --one-file-system "$folder"
}

# The seconds of the last line of the kernel log, and the complaints that came after such a time.
kernel_time()
{
	dmesg 2>/dev/null | sed -n 's/^\[ *\([0-9.]*\)\].*/\1/p' | tail -n 1
}

kernel_complaints()
{
	dmesg 2>/dev/null | awk -v since="$1" -F '[][]' '$2 + 0 > since + 0' |
		grep -E 'BUG: |kernel BUG|WARNING: |Oops: |general protection fault|blocked for more than|soft lockup|hung_task'
}

leave()
{
	trap '' HUP INT TERM
	if [ -n "$child" ] && kill -TERM "$child" 2>/dev/null; then
		wait "$child" 2>/dev/null
	fi
	sweep "$top" >/dev/null
}
trap leave EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# What the sanitizers find goes to files, since a daemon has no stderr that anybody reads.
sanitizer_options()
{
	local common="halt_on_error=1:exitcode=99:log_path=$1/sanitizer"
	export ASAN_OPTIONS="$common:detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1"
	export UBSAN_OPTIONS="$common:print_stacktrace=1"
	export LSAN_OPTIONS=exitcode=99
	export TSAN_OPTIONS="$common:second_deadlock_stack=1"
}

# report NAME SECONDS STATUS LOG TROUBLE: one line, and the log's tail after a failure.
report()
{
	local name=$1 seconds=$2 status=$3 log=$4 trouble=$5
	if [ "$status" -eq 0 ] && [ -z "$trouble" ]; then
		passed=$((passed + 1))
		echo "ok $name ($seconds s)"
		return
	elif [ "$status" -eq 77 ] && [ -z "$trouble" ]; then
		skipped=$((skipped + 1))
		echo "skip $name: $(tail -n 1 "$log")"
		return
	fi
	failed=$((failed + 1))
	case $status in
	0 | 77) echo "FAIL $name" ;;
	124) echo "FAIL $name (not done after $limit s)" ;;
	137) echo "FAIL $name (not done after $limit s, or killed)" ;;
	*) echo "FAIL $name (exit status $status)" ;;
	esac
	[ -z "$trouble" ] || printf '%s\n' "$trouble" >>"$log"
	tail -n 40 "$log" | sed 's/^/    /'
}

# run NAME PROGRAM
run()
{
	local name=$1 program=$2 folder=$top/$1 log=$logs/$1.log
	local start=${EPOCHREALTIME/[.,]/} before status trouble
	mkdir "$folder" || exit 1
	before=$(kernel_time)
	# timeout leads a process group of its own and signals all of it. A job in the background
	# ignores SIGINT, which the tests of Ctrl-C must not inherit.
	(
		cd "$folder" || exit 1
		[ -z "$SANITIZE" ] || sanitizer_options "$folder"
		# OpenMP's runtime is not instrumented: each of its barriers would look like a race.
		[ "$SANITIZE" != thread ] || export OMP_NUM_THREADS=1
		export TMPDIR=$folder
		exec env --default-signal=INT,QUIT timeout -k 30 "$limit" "$program"
	) >"$log" 2>&1 </dev/null &
	child=$!
	wait "$child"
	status=$?
	child=
	trouble=$(
		[ -z "$(find "$folder" -maxdepth 1 -name 'sanitizer.*' -print -quit)" ] ||
			tail -n 60 "$folder"/sanitizer.*
		sweep "$folder"
		[ -z "$before" ] || kernel_complaints "$before" | sed 's/^/kernel: /'
	)
	local took=$(((${EPOCHREALTIME/[.,]/} - start) / 100000))
	report "$name" "$((took / 10)).$((took % 10))" "$status" "$log" "$trouble"
}

wanted()
{
	local name=$1 pattern
	shift
	[ $# -eq 0 ] && return
	for pattern; do
		# shellcheck disable=SC2254
		case $name in $pattern | *$pattern*) return 0 ;; esac
	done
	return 1
}

[ -n "$(kernel_time)" ] || echo 'the kernel log cannot be read: it is not watched'
for source in "$ROOT"/tests/unit/test_*.c "$ROOT"/tests/e2e/test_*.sh; do
	[ -e "$source" ] || continue
	name=${source##*/}
	case $source in
	*.c) name=${name%.c} program=$BUILD/tests/$name ;;
	*) program=$source ;;
	esac
	wanted "$name" "$@" || continue
	if [ -x "$program" ]; then
		run "$name" "$program"
	else
		failed=$((failed + 1))
		echo "FAIL $name (${program#"$ROOT"/} is not there or not executable)"
	fi
done

summary="$passed passed, $failed failed"
[ "$skipped" -eq 0 ] || summary="$summary, $skipped skipped"
echo "$summary" >"$logs/summary"
echo "$summary"
[ "$failed" -eq 0 ] && [ $((passed + skipped)) -gt 0 ]
