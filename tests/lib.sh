# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# What the end-to-end tests share. A test begins with
#
#	. "$(dirname "$0")/../lib.sh"
#
# and then has: ROOT, BUILD, TEST_DATA (absolute), the programs in PATH, WORK (a private empty
# folder), and the functions below. Whatever it leaves mounted below WORK is unmounted, whatever it
# leaves running is ended, and WORK is removed, also on failure and on signals. Any command that
# fails ends the test and is named with its line.
set -Eeuo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
BUILD=${BUILD:-build}
case $BUILD in /*) ;; *) BUILD=$ROOT/$BUILD ;; esac
TEST_DATA=${TEST_DATA:-tests/data}
case $TEST_DATA in /*) ;; *) TEST_DATA=$ROOT/$TEST_DATA ;; esac
PATH=$BUILD:$PATH
export ROOT BUILD TEST_DATA PATH
export PYTHONDONTWRITEBYTECODE=1 # beside the scripts, that is into the tree

# WORK/.. is ours as well: what the functions here write lies beside WORK, never in it.
LIB_PRIVATE=$(cd "$(mktemp -d "${TMPDIR:-/tmp}/expertfs.XXXXXX")" && pwd -P)
WORK=$LIB_PRIVATE/work
mkdir "$WORK"
export WORK
# Inherited by all that the test starts, daemons too: cleaning up finds them by it.
export EXPERTFS_TEST=$LIB_PRIVATE
# What the daemons that mount_store starts say.
DAEMON_LOG=$LIB_PRIVATE/expertfs.log
: >"$DAEMON_LOG"

trap 'echo "${0##*/}:$LINENO: failed with $?: $BASH_COMMAND" >&2' ERR
trap 'lib_leave $?' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

die()
{
	echo "${0##*/}: $*" >&2
	exit 1
}

# The reason is the last line of the output, where run.sh finds it.
skip()
{
	echo "$*"
	exit 77
}

section()
{
	printf '== %s (%d s)\n' "$*" "$SECONDS"
}

# expect_fail STATUS REGEX CMD...: CMD ends within 60 s with this very status and says one line on
# stderr, which matches the extended regular expression.
expect_fail()
{
	local want=$1 regex=$2 got=0
	local out=$LIB_PRIVATE/stdout err=$LIB_PRIVATE/stderr problem=
	shift 2
	# timeout can run a program only, no function of the shell.
	type -P "$1" >/dev/null || die "expect_fail: $1 is not a program"
	timeout -k 5 60 "$@" </dev/null >"$out" 2>"$err" || got=$?
	if [ "$got" -eq 124 ] && [ "$want" -ne 124 ]; then
		problem='did not end within 60 s'
	elif [ "$got" -ne "$want" ]; then
		problem="ended with $got, not $want"
	elif [ "$(wc -l <"$err")" -ne 1 ]; then
		problem="said $(wc -l <"$err") lines on stderr, not one"
	elif ! grep -Eq -- "$regex" "$err"; then
		problem="said nothing that matches /$regex/"
	fi
	[ -z "$problem" ] && return
	{
		echo "command: $*"
		echo '--- stdout (the last 20 lines)'
		tail -n 20 "$out"
		echo '--- stderr (the last 40 lines)'
		tail -n 40 "$err"
		echo '---'
	} >&2
	die "$1 $problem"
}

need_root()
{
	[ "$(id -u)" -eq 0 ] || skip 'needs root'
}

# A /dev/fuse that can be opened, and the right to mount with it.
need_fuse()
{
	# shellcheck disable=SC2188
	(: <>/dev/fuse) 2>/dev/null || skip 'needs a usable /dev/fuse'
	if [ "$(id -u)" -eq 0 ]; then
		# Bit 21 is CAP_SYS_ADMIN, which root in a container may lack.
		local caps
		caps=$(sed -n 's/^CapEff:[[:space:]]*//p' /proc/self/status)
		(((16#$caps >> 21) & 1)) || skip 'needs CAP_SYS_ADMIN to mount'
	else
		command -v fusermount3 >/dev/null || skip 'needs fusermount3 to mount'
	fi
}

# mount_store [-o OPTIONS]... STORE MNT [expertfs options...]: returns when STORE is mounted on MNT,
# which is made if it is not there. The daemon is in the background then.
mount_store()
{
	local options=() store mnt status=0
	while [ "$1" = -o ]; do
		options+=(-o "$2")
		shift 2
	done
	store=$1 mnt=$(lib_absolute "$2")
	shift 2
	need_fuse
	mkdir -p "$mnt"
	timeout -k 5 60 expertfs "$@" "${options[@]}" "$store" "$mnt" \
		</dev/null >>"$DAEMON_LOG" 2>&1 || status=$?
	if [ "$status" -ne 0 ] || ! mountpoint -q "$mnt"; then
		tail -n 20 "$DAEMON_LOG" >&2
		die "expertfs $* ${options[*]} $store $mnt ended with $status and did not mount"
	fi
}

# daemon_pid MNT: the process that serves MNT; fails if there is none.
daemon_pid()
{
	local mnt pid
	mnt=$(lib_absolute "$1")
	for pid in $(lib_processes); do
		[ "$(cat "/proc/$pid/comm" 2>/dev/null)" = expertfs ] || continue
		if tr '\0' '\n' 2>/dev/null <"/proc/$pid/cmdline" | grep -Fxq -- "$mnt"; then
			echo "$pid"
			return
		fi
	done
	return 1
}

# unmount MNT: as a user does it; the daemon then has 20 s to end.
unmount()
{
	local mnt pid i
	mnt=$(lib_absolute "$1")
	pid=$(daemon_pid "$mnt" || true)
	if [ "$(id -u)" -eq 0 ]; then
		umount "$mnt"
	else
		fusermount3 -u "$mnt"
	fi
	! mountpoint -q "$mnt" || die "$mnt is still mounted"
	[ -n "$pid" ] || return 0
	for ((i = 0; i < 200; i++)); do
		lib_running "$pid" || return 0
		sleep 0.1
	done
	die "the daemon of $mnt (process $pid) did not end within 20 s of the unmount"
}

# json_get FILE KEY: the value at KEY, a path of member names and indices with dots: drives.0.path.
# Strings come plain, all else as JSON. Fails if there is none.
json_get()
{
	python3 -c '
import json, sys
path, key = sys.argv[1:]
try:
    v = json.load(open(path, encoding="utf-8"))
    for k in key.split("."):
        v = v[int(k)] if isinstance(v, list) else v[k]
except (OSError, ValueError, KeyError, IndexError, TypeError) as e:
    sys.exit("json_get: %s of %s: %s: %s" % (key, path, type(e).__name__, e))
print(v if isinstance(v, str) else json.dumps(v))' "$1" "$2"
}

# plain_folder CHECKPOINT DIR [OPTION...]: packs it with coli-pack's options; DIR becomes the plain folder that the engine
# reads without a daemon.
plain_folder()
{
	local checkpoint=$1 dir=$2
	shift 2
	rm -rf "$WORK/packed" "$dir"
	coli-pack "$@" "$checkpoint" "$WORK/packed" >"$WORK/pack.log" 2>&1 ||
		die "coli-pack $* $checkpoint: $(tail -n 1 "$WORK/pack.log")"
	expertctl export "$WORK/packed" "$dir" >"$WORK/export.log" 2>&1 ||
		die "expertctl export of $checkpoint: $(tail -n 1 "$WORK/export.log")"
	rm -rf "$WORK/packed"
}

# stat_of MNT KEY: the same for the daemon's own figures.
stat_of()
{
	json_get "$1/.expertfs/stats.json" "$2"
}

# -- inside --------------------------------------------------------------------------------------

lib_absolute()
{
	# Lexically: to look at a dead mount is an error.
	realpath -ms -- "$1"
}

# The mount points below our folder, deepest first, as they come in mountinfo (\040 for a space).
lib_mounts()
{
	local point
	while read -r _ _ _ _ point _; do
		point=$(printf '%b' "${point//\\/\\0}")
		case $point in "$LIB_PRIVATE"/*) echo "$point" ;; esac
	done </proc/self/mountinfo | sort -r
}

# All processes that the test has started and that still run, but the shell itself.
lib_processes()
{
	local pid
	env -u EXPERTFS_TEST grep -Fzlx -- "EXPERTFS_TEST=$LIB_PRIVATE" /proc/[0-9]*/environ 2>/dev/null |
		while IFS=/ read -r _ _ pid _; do
			[ "$pid" -ne $$ ] && [ "$pid" -ne "$BASHPID" ] && lib_running "$pid" &&
				echo "$pid"
		done || true
}

# A zombie does not run.
lib_running()
{
	local state
	state=$(sed -n 's/^State:[[:space:]]*\(.\).*/\1/p' "/proc/$1/status" 2>/dev/null) || return 1
	[ -n "$state" ] && [ "$state" != Z ]
}

lib_end()
{
	# shellcheck disable=SC2086
	[ -z "$2" ] || kill -"$1" $2 2>/dev/null
}

# Waits for the end of all that the test started, so many tenths of a second.
lib_all_gone()
{
	local i
	for ((i = 0; i < $1; i++)); do
		[ -z "$(lib_processes)" ] && return
		sleep 0.1
	done
	return 1
}

lib_leave()
{
	local status=$1 mnt pid
	trap '' HUP INT TERM
	trap - ERR EXIT
	set +e
	if [ "$status" -ne 0 ] && [ "$status" -ne 77 ] && [ -s "$DAEMON_LOG" ]; then
		echo '--- the daemons said (the last 20 lines)' >&2
		tail -n 20 "$DAEMON_LOG" >&2
	fi
	cd /
	while read -r mnt; do
		umount -l "$mnt" 2>/dev/null || fusermount3 -uz "$mnt" 2>/dev/null ||
			echo "${0##*/}: $mnt cannot be unmounted" >&2
	done < <(lib_mounts)
	lib_end TERM "$(jobs -p)"
	for pid in $(lib_processes); do
		[ "$(cat "/proc/$pid/comm" 2>/dev/null)" = expertfs ] || lib_end TERM "$pid"
	done
	# A daemon ends by itself once it is unmounted: one that does not is a fault.
	if ! lib_all_gone 100; then
		for pid in $(lib_processes); do
			echo "${0##*/}: still running: $pid $(cat "/proc/$pid/comm" 2>/dev/null)" >&2
		done
		[ "$status" -eq 0 ] && status=1
		lib_end KILL "$(lib_processes)"
		lib_all_gone 30
	fi
	rm -rf --one-file-system "$LIB_PRIVATE"
	exit "$status"
}
