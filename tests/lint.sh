#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The style of the tree: the licence line, clang-format, clang-tidy with the project's flags and, where
# it is installed, shellcheck. Arguments are files to check instead of all. Exit status 1 if anything
# is amiss.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

status=0
if [ $# -gt 0 ]; then
	files=("$@")
else
	mapfile -t files < <(find Makefile README.md .ci expertfs engine cachepolicy tools tests \
		-path tests/data -prune -o -type f -print 2>/dev/null | sort)
fi

c=() sources=() scripts=()
for file in "${files[@]}"; do
	case $file in
	tests/reference/*.c | */tests/reference/*.c) c+=("$file") ;; # its headers are llama.cpp's
	*.c) c+=("$file") sources+=("$file") ;;
	*.h) c+=("$file") ;;
	*.sh | .ci/run) scripts+=("$file") ;;
	*.py | Makefile | *.[18]) ;;
	*) continue ;;
	esac
	head -n 3 "$file" | grep -q 'SPDX-License-Identifier: Apache-2.0' || {
		echo "$file: has no SPDX-License-Identifier in its first lines"
		status=1
	}
done

for tool in clang-format clang-tidy; do
	command -v $tool >/dev/null || {
		echo "lint: $tool is not installed" >&2
		exit 1
	}
done
if [ ${#c[@]} -gt 0 ]; then
	clang-format --dry-run -Werror "${c[@]}" || status=1
fi
# clang-tidy FILE, without its counts of what it suppressed in system headers.
tidy()
{
	local found
	# Kernels are compiled once per instruction set; one of them is enough to look at.
	# shellcheck disable=SC2046
	found=$(clang-tidy --quiet "$1" -- -std=gnu11 -D_GNU_SOURCE -DFUSE_USE_VERSION=314 -DKERNEL_ISA=plain -DEXPERTFS_VERSION='"lint"' -I. \
		$(case $1 in *_amx.c) echo -march=sapphirerapids ;; esac) \
		$(pkg-config --cflags fuse3 jansson libpcre2-8) 2>&1) && return
	grep -v -E 'warnings? generated|^Suppressed|^Use -header-filter' <<<"$found"
	return 1
}
export -f tidy
if [ ${#sources[@]} -gt 0 ]; then
	# shellcheck disable=SC2016
	printf '%s\0' "${sources[@]}" | xargs -0 -n 1 -P "$(nproc)" bash -c 'tidy "$1"' tidy || status=1
fi
if [ ${#scripts[@]} -gt 0 ] && command -v shellcheck >/dev/null; then
	shellcheck -S warning -x -P SCRIPTDIR "${scripts[@]}" || status=1
fi
# Who may include whose headers.
for rule in 'engine engine' 'cachepolicy cachepolicy' 'expertfs expertfs|cachepolicy' 'tools tools|expertfs|cachepolicy|engine'; do
	if grep -rEn --include='*.[ch]' '^#include "' "${rule%% *}" | grep -Ev "#include \"(${rule#* })/"; then
		echo "${rule%% *}/ may include ${rule#* } only"
		status=1
	fi
done
[ $status -eq 0 ] && echo 'lint: clean'
exit $status
