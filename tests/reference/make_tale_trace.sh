#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Records tests/data/traces/tale-moe.trace: the story model in tests/data/tale-moe, packed at 4 bits, on a
# mount, continues five beginnings and a page of the held-out text, one after the other.
#
#	make_tale_trace.sh FILE       BUILD is where the programs are (build)
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd -P)
BUILD=${BUILD:-$root/build}
PATH=$BUILD:$PATH
file=$(realpath -m "${1:?which file?}")
model=$root/tests/data/tale-moe
work=$(mktemp -d)
trap 'umount "$work/mnt" 2>/dev/null || true; rm -rf "$work"' EXIT

go_on()
{
	coli-engine run "$work/mnt" -q "$@" --draft off --temp 0.8 --top-p 0.9 >/dev/null
}

mkdir "$work/mnt"
coli-pack "$model" "$work/tale" >/dev/null
expertfs --memory 12M "$work/tale" "$work/mnt"
expertctl trace "$work/mnt" start "$file"
go_on -p 'Once upon a time there was a king' -n 120 --seed 1
go_on -p 'In the middle of the great forest stood a little house, and in it' -n 120 --seed 2
go_on -p '"Good morning," said the fox to the wolf. "Where are you going' -n 120 --seed 3
go_on -p 'There were once three brothers who had nothing in the world but' -n 120 --seed 4
go_on -p 'When the princess opened the door, she saw' -n 120 --seed 5
head -c 2000 "$model/held-out.txt" | go_on -f - -n 150 --seed 6
expertctl trace "$work/mnt" stop
