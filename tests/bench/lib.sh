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

# forget STORE: it has learned nothing yet: usage of the round before would warm it up.
forget()
{
	[ -e "$1/catalog.new" ] || cp "$1/catalog.db" "$1/catalog.new"
	rm -f "$1"/catalog.db*
	cp "$1/catalog.new" "$1/catalog.db"
}
