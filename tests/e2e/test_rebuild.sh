#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A lost, torn or foreign catalog.db: what a mount makes of it, and `expertctl rebuild`; `expertctl verify`
# finds what is bad, on a store that is mounted or not, and after a rebuild from it.
. "$(dirname "$0")/../lib.sh"
need_root
need_fuse

MNT=$WORK/mnt
PATH=$BUILD/tests:$PATH
S=$WORK/s

flip()
{
	python3 -c '
import sys
with open(sys.argv[1], "r+b") as f:
    f.seek(int(sys.argv[2]))
    b = f.read(1)
    f.seek(int(sys.argv[2]))
    f.write(bytes([b[0] ^ 1]))' "$1" "$2"
}

uses()
{
	python3 -c '
import sqlite3, sys
print(sqlite3.connect(sys.argv[1]).execute("SELECT coalesce(sum(uses), 0) FROM usage").fetchone()[0])' "$S/catalog.db"
}

# fails_and_says REGEX CMD...: like expect_fail 1, but CMD may say what it found in lines before.
fails_and_says()
{
	local regex=$1 status=0
	shift
	"$@" >"$WORK/out" 2>"$WORK/err" || status=$?
	[ $status = 1 ] && tail -n 1 "$WORK/err" | grep -Eq "$regex" || die "$* ended with $status: $(cat "$WORK/err")"
}

# mounts_as NAME REGEX: the store mounts, says that on the way, and has all its experts.
mounts_as()
{
	: >"$DAEMON_LOG"
	mount_store "$S" "$MNT" --memory 64M
	if [ -n "$2" ]; then
		grep -Eq "$2" "$DAEMON_LOG" || die "$1: the daemon does not say $2"
	elif grep -q 'anew' "$DAEMON_LOG"; then
		die "$1: the catalog was made anew for nothing"
	fi
	diff -r "$MNT/experts" "$S.plain/experts"
	unmount "$MNT"
}

section 'a mount makes a bad catalog anew'
make_store "$S" 3 8 300001 3 2 2
mounts_as good ''
[ "$(uses)" = 24 ] || die "$(uses) uses are recorded"
cp "$S/catalog.db" "$WORK/good.db"
truncate -s 9000 "$S/catalog.db"
mounts_as torn 'catalog.db is damaged: it ends too early; making the catalog anew'
cmp -n 9000 "$S/catalog.db.damaged" "$WORK/good.db"
cp "$WORK/good.db" "$S/catalog.db"
python3 - "$S/catalog.db" <<'END'
import sys
with open(sys.argv[1], "r+b") as f: # all pages behind the schema but the last two
    f.seek(4096)
    f.write(bytes(range(1, 129)) * 32)
END
mounts_as 'a damaged page' 'catalog.db.*making the catalog anew'
echo 'no database' >"$S/catalog.db"
mounts_as garbage 'making the catalog anew'
rm "$S/catalog.db"
mounts_as deleted 'catalog.db: No such file or directory; making the catalog anew'
cp "$WORK/good.db" "$S/catalog.db"
mounts_as 'good again' ''

expertctl verify "$S" >"$WORK/out" && grep -q 'everything is good' "$WORK/out" || die "$(cat "$WORK/out")"

section 'usage is kept where it can be read'
before=$(uses)
[ "$before" -gt 24 ] || die 'the last mount was not recorded'
python3 - "$S/catalog.db" <<'END'
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute("DROP TABLE extents")
db.commit()
END
mounts_as 'no extents' 'with the usage of 24 of them'
[ "$(uses)" -gt "$before" ] || die "$before uses before, $(uses) now"

section "another store's catalog"
make_store "$WORK/other" 3 8 300001 1 1 1
python3 - "$WORK/other/catalog.db" <<'END'
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute("UPDATE meta SET value = 'ffffffffffffffffffffffffffffffff' WHERE key = 'store_id'")
db.commit()
END
cp "$WORK/other/catalog.db" "$S/catalog.db"
mounts_as foreign 'catalog.db is that of another store; making the catalog anew'
[ "$(uses)" = 24 ] || die 'usage of another store was taken'

section 'what cannot be made anew is said, and left as it is'
rm "$S/catalog.db"
mv "$S.drive2" "$S.away"
fails_and_says 'cannot be made anew: .*drive2/test.shard is missing; is the drive mounted' expertfs "$S" "$MNT"
fails_and_says 'drive2/test.shard is missing' expertctl rebuild "$S"
[ ! -e "$S/catalog.db" ] || die 'a catalog was made'
expertctl rebuild "$S" --drive "$S.away" >"$WORK/out"
grep -q 'a new catalog of 24 experts on 3 drives' "$WORK/out" || die "$(cat "$WORK/out")"
mounts_as 'a drive elsewhere' ''
mv "$S.away" "$S.drive2"
rm "$S/catalog.db" "$S/shards"
fails_and_says 'the shard of drive 1.* is missing' expertctl rebuild "$S"
expertctl rebuild "$S" --drive "$S.drive1/test.shard" --drive "$S.drive2" --quick >"$WORK/out"
mounts_as 'no list' ''
mount_store "$S" "$MNT" --memory 64M
expect_fail 1 'unmount it first' expertctl rebuild "$S"
rm "$S/catalog.db"
mkdir "$WORK/second"
fails_and_says 'cannot be made anew: .* in use' expertfs "$S" "$WORK/second"
unmount "$MNT"
mounts_as 'deleted while it was mounted' 'making the catalog anew'
expect_fail 1 'No such file' expertctl rebuild "$WORK/nowhere"
expect_fail 1 'no shard of .* was found' expertctl rebuild "$S.plain"
expect_fail 2 'needs a STORE' expertctl rebuild
expect_fail 2 'needs a shard or a folder' expertctl rebuild "$S" --drive

section 'verify finds what is bad'
flip "$S/test.shard" 70000                    # the payload of the first record, expert 0/0
flip "$S.drive1/test.shard" $((4096 + 30))    # the head of the first one there: its expert is good
if expertctl verify "$S" >"$WORK/out"; then
	die 'verify finds nothing'
fi
[ "$(grep -c '^bad: ' "$WORK/out")" = 2 ] || die "$(cat "$WORK/out")"
grep -q "^bad: expert 0/0, copy [01], [0-9]* bytes at 8192 of drive 0, $S/test.shard: its checksum is wrong" "$WORK/out" ||
	die "$(cat "$WORK/out")"
grep -q 'at 8192 of drive 1, .*: the head of its record is damaged' "$WORK/out" || die "$(cat "$WORK/out")"
grep -q ': 1 bad record of 1 expert, of which 0 have no good copy left; 1 damaged head' "$WORK/out" || die "$(cat "$WORK/out")"
mount_store "$S" "$MNT" --memory 64M
diff -r "$MNT/experts" "$S.plain/experts" # the other copy
if expertctl verify "$MNT" >"$WORK/out2"; then
	die 'verify of the mount finds nothing'
fi
diff <(grep '^bad: ' "$WORK/out") <(grep '^bad: ' "$WORK/out2")
unmount "$MNT"
mv "$S.drive2" "$S.away"
if expertctl verify "$S" >"$WORK/out" 2>"$WORK/err"; then
	die 'verify does not miss a drive'
fi
grep -q 'drive2/test.shard: the shard of drive 2 is missing' "$WORK/err" || die "$(cat "$WORK/err")"
grep -q '^bad: .*: the drive is missing' "$WORK/out" || die "$(cat "$WORK/out")"
mv "$S.away" "$S.drive2"

section 'a catalog that names the wrong place'
cp "$S/catalog.db" "$WORK/good.db"
python3 - "$S/catalog.db" <<'END'
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute("UPDATE extents SET offset = (SELECT offset FROM extents WHERE layer = 2 AND expert = 5 AND copy = 0 AND part = 0),"
           " drive = (SELECT drive FROM extents WHERE layer = 2 AND expert = 5 AND copy = 0 AND part = 0)"
           " WHERE layer = 1 AND expert = 1 AND copy = 0 AND part = 0")
db.commit()
END
if expertctl verify --fast "$S" >"$WORK/out"; then
	die 'verify believes the catalog'
fi
grep -q '^bad: expert 1/1, copy 0, .* is it the catalog that is wrong' "$WORK/out" || die "$(cat "$WORK/out")"
cp "$WORK/good.db" "$S/catalog.db"

section 'rebuild leaves out what does not hold'
expertctl rebuild "$S" >"$WORK/out" 2>"$WORK/err"
grep -q 'part 1 of 2 of expert 0/0 at 8192: its checksum is wrong' "$WORK/err" || die "$(cat "$WORK/err")"
grep -q 'drive1/test.shard: .* bytes are neither a record nor a hole, the first at 4096' "$WORK/err" || die "$(cat "$WORK/err")"
mounts_as 'without the bad copies' ''
expertctl verify "$S" >"$WORK/out" && grep -q 'everything is good' "$WORK/out" || die "$(cat "$WORK/out")"
flip "$S.drive1/test.shard" $((4096 + 30)) # back again
# The other copy of 0/0 as well: now it is lost.
python3 - "$S" <<'END'
import sqlite3, sys
db = sqlite3.connect(sys.argv[1] + "/catalog.db")
(drive, offset), = db.execute("SELECT drive, offset FROM extents WHERE layer = 0 AND expert = 0 AND part = 0")
path = sys.argv[1] + ("" if drive == 0 else ".drive%d" % drive) + "/test.shard"
with open(path, "r+b") as f:
    f.seek(offset + 1000)
    f.write(b"no longer what it was")
END
fails_and_says '1 expert.* not in its shards; nothing was changed' expertctl rebuild "$S"
grep -q 'expert 0/0 has no whole copy' "$WORK/err" || die "$(cat "$WORK/err")"
expertctl rebuild "$S" --partial >"$WORK/out" 2>"$WORK/err"
grep -q 'a new catalog of 23 experts' "$WORK/out" || die "$(cat "$WORK/out")"
mount_store "$S" "$MNT" --memory 64M
[ ! -e "$MNT/experts/000/000" ] || die 'an expert without bytes is shown'
cmp "$MNT/experts/000/001" "$S.plain/experts/000/001"
unmount "$MNT"

section 'interrupted'
make_store --no-plain "$WORK/large" 1 40 4000000
for signal in INT TERM; do
	cp "$WORK/large/catalog.db" "$WORK/before.db"
	env --default-signal=INT expertctl rebuild "$WORK/large" >"$WORK/out" 2>"$WORK/err" &
	pid=$!
	sleep 0.03
	kill -$signal $pid 2>"$WORK/out2" || true
	status=0
	wait $pid || status=$?
	case $status in
	1) grep -q 'interrupted; nothing was changed' "$WORK/err" && cmp "$WORK/large/catalog.db" "$WORK/before.db" ;;
	0) ;; # it was quicker
	*) [ "$status" = 130 ] || [ "$status" = 143 ] ;; # before it heard of signals
	esac || die "$signal: $status, $(cat "$WORK/err")"
	expertctl verify "$WORK/large" >"$WORK/out"
done
