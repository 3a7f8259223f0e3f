#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Mounting with mount(8): by type, by a line of fstab, as at boot, by a user. mount(8) runs
# /sbin/mount.fuse3 for the type fuse.expertfs, and that runs expertfs from its own fixed PATH: so all of it is in a
# mount namespace where /usr/local/bin is ours.
. "$(dirname "$0")/../lib.sh"
need_root
need_fuse
[ -x /sbin/mount.fuse3 ] || skip 'needs mount.fuse3 (package fuse3)'

cat >"$WORK/namespace.sh" <<'EOF2'
set -Eeuo pipefail
trap 'echo "line $LINENO: $BASH_COMMAND ended with $?" >&2' ERR
mnt=/mnt/experts user=/mnt/user

fail()
{
	echo "$*" >&2
	exit 1
}

# What expertfs says when it mounts is not of interest.
quiet()
{
	"$@" 2>/mnt/said || { cat /mnt/said >&2; return 1; }
}

# expect STATUS REGEX CMD...: CMD ends so, and says so in one line.
expect()
{
	local want=$1 regex=$2 got=0
	shift 2
	"$@" 2>/mnt/said || got=$?
	[ $got = "$want" ] || fail "$* ended with $got, not $want"
	grep -Eq -- "$regex" /mnt/said || fail "$* does not say '$regex' but: $(cat /mnt/said)"
}

as_nobody()
{
	setpriv --reuid nobody --regid nogroup --clear-groups "$@"
}

# mounted KEY MNT: a column of findmnt.
mounted()
{
	findmnt -n -o "$1" --mountpoint "$2"
}

stat_of()
{
	python3 -c 'import json, sys; print(json.load(open(sys.argv[1] + "/.expertfs/stats.json"))[sys.argv[2]])' "$@"
}

# The daemons in this mount namespace.
daemons()
{
	local pid
	for pid in $(pgrep -x expertfs); do
		[ "$(readlink "/proc/$pid/ns/mnt")" = "$(readlink /proc/self/ns/mnt)" ] && echo "$pid"
	done
	true
}

take_away()
{
	quiet umount "$1"
	for _ in $(seq 100); do
		[ -n "$(daemons)" ] || return 0
		sleep 0.1
	done
	fail "the daemon of $1 did not end"
}

mount -t tmpfs -o mode=755 tmpfs /mnt
mkdir /mnt/bin $mnt $user
cp "$BUILD/expertfs" /mnt/bin/
mknod -m 666 /mnt/fuse c 10 229
mount --bind /mnt/fuse /dev/fuse
mount --bind /mnt/bin /usr/local/bin
make_store /mnt/glm 2 4 300001
cp -r /mnt/glm /mnt/glm-user
chown -R nobody:nogroup /mnt/glm-user $user

echo '== by type, with all that the manual shows'
quiet mount -t fuse.expertfs /mnt/glm $mnt -o memory=64M,allow_other,default_permissions,ro
diff -r $mnt/experts /mnt/glm.plain/experts
[ "$(mounted SOURCE $mnt)" = /mnt/glm ] && [ "$(mounted FSTYPE $mnt)" = fuse.expertfs ] || fail "mounted: $(findmnt $mnt)"
for option in nosuid nodev noexec allow_other default_permissions; do
	mounted OPTIONS $mnt | grep -qw $option || fail "not mounted with $option: $(mounted OPTIONS $mnt)"
done
stat_of $mnt memory | grep -q "'budget': 67108864" || fail 'memory= was not taken'
as_nobody cmp $mnt/experts/001/003 /mnt/glm.plain/experts/001/003
expect 1 'Permission denied' as_nobody dd if=/dev/zero of=$mnt/.expertfs/policy count=1 status=none
echo lru >$mnt/.expertfs/policy
[ "$(cat $mnt/.expertfs/policy)" = lru ] || fail 'the owner cannot write to a control file'
expect 2 'remount: umount it' mount -o remount,memory=8M $mnt
take_away $mnt

echo '== every option that mount(8) may pass on'
quiet mount -t fuse.expertfs /mnt/glm $mnt -o memory=64M,mode=direct,nofail,_netdev,x-systemd.requires=/mnt,comment=x,dev,suid,exec,sync,dirsync,nosymfollow,strictatime,lazytime,mand,silent,users,noauto
[ "$(stat_of $mnt mode)" = direct ] || fail 'mode= was not taken'
expect 1 'Permission denied' as_nobody cat $mnt/model.json
take_away $mnt

echo '== a line of fstab, with the environment of a boot'
cat >/mnt/fstab <<EOF3
/mnt/glm       $mnt   fuse.expertfs  memory=64M,allow_other,nofail,_netdev,x-systemd.requires-mounts-for=/mnt  0 0
/mnt/glm-user  $user  fuse.expertfs  memory=64M,noauto,user  0 0
EOF3
env -i /bin/mount -T /mnt/fstab -a 2>/mnt/said
cmp $mnt/experts/000/001 /mnt/glm.plain/experts/000/001
! mounted SOURCE $user || fail 'a noauto line was mounted'
take_away $mnt

echo '== failures are passed on, with the sentence'
expect 1 'expertfs: /mnt/none: No such file' mount -t fuse.expertfs /mnt/none $mnt
expect 2 'expertfs: -o speed: unknown option' mount -t fuse.expertfs /mnt/glm $mnt -o speed=9
expect 2 'expertfs: --memory much: not a size' mount -t fuse.expertfs /mnt/glm $mnt -o memory=much
! mounted SOURCE $mnt || fail 'something was mounted'

echo '== another user: setuid='
quiet mount -t fuse.expertfs /mnt/glm-user $user -o memory=64M,setuid=nobody
as_nobody cmp $user/experts/001/002 /mnt/glm.plain/experts/001/002
[ "$(as_nobody cat $user/.expertfs/stats.json | grep -c '"mode": "direct"')" = 1 ] || fail 'a user has passthrough'
take_away $user

echo '== a user by fstab'
if [ -e /etc/fstab ]; then
	mount --bind /mnt/fstab /etc/fstab
	as_nobody mount $user 2>/dev/null
	as_nobody cmp $user/experts/001/002 /mnt/glm.plain/experts/001/002
	as_nobody umount $user
	! mounted SOURCE $user || fail 'still mounted'
fi
EOF2

PATH=$BUILD/tests:$PATH unshare --mount --propagation private bash "$WORK/namespace.sh"
