#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The experts' extended attributes: values in every state and layout, and the protocol of getxattr and listxattr.
. "$(dirname "$0")/../lib.sh"
need_root
need_fuse

MNT=$WORK/mnt
PATH=$BUILD/tests:$PATH

cat >"$WORK/look.py" <<'EOF2'
import ctypes, errno, os, sys, threading
mnt, what = sys.argv[1:]
path = mnt + "/experts/000/001"
NAMES = ["user.expertfs.state", "user.expertfs.drive", "user.expertfs.uses"]
libc = ctypes.CDLL(None, use_errno=True)

def value(key, of=path):
    return os.getxattr(of, "user.expertfs." + key).decode()

def check(got, want):
    if got != want:
        sys.exit("%r, not %r" % (got, want))

def refused(errnos, f, *args):
    try:
        f(*args)
    except OSError as e:
        return check(e.errno in errnos, True)
    sys.exit("%r was not refused" % (args,))

def raw_get(name, size):
    buf = ctypes.create_string_buffer(64)
    n = libc.getxattr(path.encode(), name.encode(), buf, ctypes.c_size_t(size))
    return n if n >= 0 else -ctypes.get_errno()

def raw_list(size):
    buf = ctypes.create_string_buffer(256)
    n = libc.listxattr(path.encode(), buf, ctypes.c_size_t(size))
    return n if n >= 0 else -ctypes.get_errno()

def plain():
    check(os.listxattr(path), NAMES)
    check(value("state"), "cold")
    check(value("uses"), "0")
    for _ in range(3):
        open(path, "rb").close()
    check(value("state"), "resident")
    check(value("uses"), "3")
    check(value("state", mnt + "/experts/000/000"), "cold")
    check(value("uses", mnt + "/experts/000/000"), "0")
    # Size 0 asks for the length; too little is ERANGE, just enough is enough.
    check(raw_get("user.expertfs.state", 0), 8)
    check(raw_get("user.expertfs.state", 8), 8)
    check(raw_get("user.expertfs.state", 7), -errno.ERANGE)
    n = sum(len(name) + 1 for name in NAMES)
    check(raw_list(0), n)
    check(raw_list(n), n)
    check(raw_list(n - 1), -errno.ERANGE)
    for name in ["user.expertfs.", "user.expertfs.stat", "user.expertfs.states", "user.other", "trusted.x"]:
        refused([errno.ENODATA], os.getxattr, path, name)
    for other in ["/model.json", "/experts", "/experts/000", "/.expertfs/stats.json", ""]:
        check(os.listxattr(mnt + other), [])
        refused([errno.ENODATA], os.getxattr, mnt + other, "user.expertfs.state")
    refused([errno.EROFS, errno.EOPNOTSUPP], os.setxattr, path, "user.expertfs.uses", b"0")
    refused([errno.EROFS, errno.EOPNOTSUPP], os.removexattr, path, "user.expertfs.uses")

def loading():
    reader = threading.Thread(target=lambda: open(path, "rb").close())
    seen = [value("state")]
    reader.start()
    while seen[-1] != "resident":
        now = value("state")
        if now != seen[-1]:
            seen.append(now)
    reader.join()
    check(seen, ["cold", "loading", "resident"])

if what == "plain":
    plain()
elif what == "loading":
    loading()
else:
    check(value("drive"), what)
EOF2

section 'values and protocol'
for mode in passthrough direct; do
	make_store --no-plain "$WORK/s-$mode" 1 2 300001 # a new one: what was used before is warmed up
	mount_store "$WORK/s-$mode" "$MNT" --mode $mode --memory 64M
	timeout 60 python3 "$WORK/look.py" "$MNT" plain
	timeout 60 python3 "$WORK/look.py" "$MNT" 0
	[ "$(stat_of "$MNT" opens)" = 3 ] || die 'asking for an attribute counts as a use'
	unmount "$MNT"
done

section 'an expert on its way'
make_store --no-plain "$WORK/big" 1 2 300000000
mount_store "$WORK/big" "$MNT" --memory 1400M
for _ in $(seq 100); do # while its first memory is being made there is no room for an expert
	[ "$(stat_of "$MNT" memory.ready)" = 0 ] || break
	sleep 0.1
done
timeout 60 python3 "$WORK/look.py" "$MNT" loading || die 'not cold, loading and resident one after the other'
unmount "$MNT"
rm -r "$WORK/big"

section 'drives: whole, striped, copied'
for layout in '2 1 1=1' '3 1 2=1 2' '2 2 1=1,0' '4 2 2=1,2 2,3'; do
	rm -rf "$WORK"/d*
	# shellcheck disable=SC2086
	make_store --no-plain "$WORK/d" 1 2 300001 ${layout%=*}
	mount_store "$WORK/d" "$MNT" --memory 0
	timeout 60 python3 "$WORK/look.py" "$MNT" "${layout#*=}"
	unmount "$MNT"
done
