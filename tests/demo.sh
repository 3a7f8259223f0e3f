#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# make demo: the whole way in one minute. Packs the small story model at 4 bits, mounts it, lets it
# write a story, shows what the daemon saw, unmounts. Run with BUILD=build after `make`.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd -P)
BUILD=${BUILD:-build}
case $BUILD in /*) ;; *) BUILD=$root/$BUILD ;; esac
PATH=$BUILD:$PATH
work=$(mktemp -d "${TMPDIR:-/tmp}/expertfs-demo.XXXXXX")
mnt=$work/experts

leave()
{
	status=$?
	trap '' INT TERM
	if mountpoint -q "$mnt" 2>/dev/null; then
		umount "$mnt" 2>/dev/null || fusermount3 -u "$mnt" || umount -l "$mnt"
	fi
	rm -rf --one-file-system "$work"
	exit $status
}
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Shows a command as it would be typed, then runs it.
show()
{
	local word line='$'
	for word; do
		case $word in *' '*) word="'$word'" ;; esac
		line+=" ${word//$work/\$WORK}"
	done
	printf '\n%s\n' "${line//$root\//}"
	"$@"
}

mkdir "$mnt"
echo 'A model of the GLM-5 architecture (22 million parameters, 6 layers, 64 experts a layer, 4 chosen),'
echo 'trained on public-domain fairy tales, on its way from checkpoint to text.'
show coli-pack "$root/tests/data/tale-moe" "$work/tale"
show expertfs --memory 12M "$work/tale" "$mnt"
show ls "$mnt" "$mnt/experts" | head -n 20
show coli-engine run "$mnt" -p 'Once upon a time there was a king' -n 150 --temp 0.6 --top-p 0.9 --seed 8
echo
show expertctl stats "$mnt"
show umount "$mnt"
