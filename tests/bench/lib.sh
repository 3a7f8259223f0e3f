# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# What the measuring scripts share.

say()
{
	echo "$*" >&2
}

# calc EXPRESSION: in awk's arithmetic.
calc()
{
	awk "BEGIN { printf(\"%.6g\\n\", ($1)) }"
}

median()
{
	sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}

cold_caches()
{
	sync
	echo 3 >/proc/sys/vm/drop_caches
}
