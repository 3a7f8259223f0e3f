#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The systemd unit, run by a real service manager: a user instance as root, in PID and mount namespaces of its own
# with an empty /run, so that it meets neither the machine's systemd nor its units.
. "$(dirname "$0")/../lib.sh"
need_root
need_fuse
[ -z "${SANITIZE:-}" ] || skip 'sanitizers need system calls that the unit forbids'
manager=/lib/systemd/systemd
[ -x $manager ] && command -v systemctl >/dev/null || skip 'needs systemd'

section 'the unit is sound'
mkdir "$WORK/units"
sed "s,@BINDIR@,$BUILD," "$ROOT/expertfs/expertfs@.service.in" >"$WORK/units/expertfs@.service"
if command -v systemd-analyze >/dev/null; then
	systemd-analyze verify --man=no "$WORK/units/expertfs@.service" || die 'systemd-analyze verify finds faults'
fi

cat >"$WORK/namespace.sh" <<'EOF2'
set -Eeuo pipefail
trap 'echo "line $LINENO: $BASH_COMMAND ended with $?" >&2; cat /run/manager.log >&2' ERR
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/systemd/system /run/etc/upper /run/etc/work
mkdir -m 700 /run/user
mount -t overlay -o lowerdir=/etc,upperdir=/run/etc/upper,workdir=/run/etc/work overlay /etc || exit 77
mkdir -p /run/home/.config/systemd /etc/expertfs
cp -r "$WORK/units" /run/home/.config/systemd/user
export XDG_RUNTIME_DIR=/run/user HOME=/run/home
unset XDG_CONFIG_HOME DBUS_SESSION_BUS_ADDRESS
SYSTEMD_LOG_TARGET=console "$manager" --user --unit=basic.target >/run/manager.log 2>&1 </dev/null &
for _ in $(seq 50); do
	systemctl --user is-active basic.target >/dev/null 2>&1 && break
	sleep 0.1
done
systemctl --user is-active basic.target >/dev/null 2>&1 || exit 77

unit=expertfs@glm.service

fail()
{
	echo "$*" >&2
	systemctl --user status "$unit" >&2 || true
	exit 1
}

property()
{
	systemctl --user show -P "$1" "$unit"
}

# becomes STATE: within ten seconds.
becomes()
{
	for _ in $(seq 100); do
		[ "$(property ActiveState)" != "$1" ] || return 0
		sleep 0.1
	done
	fail "the service is $(property ActiveState), not $1"
}

echo '== without its configuration it fails'
! systemctl --user start "$unit" 2>/dev/null || fail 'it started'
systemctl --user stop "$unit"

echo '== started when the mount answers, with passthrough under all the restrictions'
cat >/etc/expertfs/glm.conf <<EOF3
STORE="$WORK/the store"
MOUNTPOINT="$MNT"
OPTIONS=--memory 64M --mode passthrough -o allow_other
EOF3
systemctl --user start "$unit"
cmp "$MNT/experts/001/003" "$WORK/the store.plain/experts/001/003"
grep -q '"io": "io_uring"' "$MNT/.expertfs/stats.json" || fail 'no io_uring'
grep -q 'NoNewPrivs:.*1' "/proc/$(property MainPID)/status" || fail 'it could get privileges'

echo '== killed: the dead mount goes, a new daemon comes'
restarts=$(property NRestarts)
kill -KILL "$(property MainPID)"
for _ in $(seq 100); do
	cmp "$MNT/experts/001/003" "$WORK/the store.plain/experts/001/003" 2>/dev/null && break
	sleep 0.1
done
cmp "$MNT/experts/001/003" "$WORK/the store.plain/experts/001/003"
[ "$(property NRestarts)" = $((restarts + 1)) ] && [ "$(findmnt -n -o SOURCE "$MNT" | wc -l)" = 1 ] || fail "$(property NRestarts) restarts, mounted: $(findmnt "$MNT")"

echo '== umount is no failure'
umount "$MNT"
becomes inactive
[ "$(property Result)" = success ] || fail 'umount counts as a failure'

echo '== stopping unmounts'
systemctl --user start "$unit"
systemctl --user stop "$unit"
! mountpoint -q "$MNT" || fail 'still mounted'
[ "$(property Result)" = success ] || fail 'stopping counts as a failure'

echo "== somebody else's mount stays"
mount -t tmpfs tmpfs "$MNT"
mkdir "$MNT/below"
rm "$WORK/the store/model.json"
! systemctl --user start "$unit" 2>/dev/null || fail 'a broken store was mounted'
[ -d "$MNT/below" ] || fail 'it unmounted what was not its own'
EOF2

section 'a service manager of our own'
PATH=$BUILD/tests:$PATH
export MNT="$WORK/mount point" manager
mkdir "$MNT"
make_store "$WORK/the store" 2 4 300001
status=0
# PID 1 of the namespace takes all with it when it ends.
unshare --mount --propagation private --pid --fork --kill-child --mount-proc bash "$WORK/namespace.sh" || status=$?
[ $status -ne 77 ] || skip 'no service manager can be run here'
exit $status
