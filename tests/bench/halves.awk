# SPDX-License-Identifier: Apache-2.0
#
# Splits a trace in time: awk -v from=0 -v to=0.5 -f halves.awk TRACE TRACE prints the first half. The
# file is named twice, as it is counted first. What comes before the events (comments, heads, sizes)
# stands in both halves; a CSV row stays with the rows of its event.
function event(line)   { return line ~ /^[0-9{]/ }
function same(line)    { split(line, f, ","); return f[1] "," f[2] "," f[3] "," f[4] }
NR == FNR              { if (event($0)) events++; next }
!event($0)             { print; next }
{
	if (!/,/ || /^{/ || same($0) != last)
		part = seen / events
	seen++
	last = same($0)
	if (part >= from && part < to)
		print
}
