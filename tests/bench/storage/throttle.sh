# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# Drives of a known speed: file systems on loop devices, and a cgroup whose processes read each of them at
# no more than so many bytes a second (blkio of cgroup v1, io of v2). Sourced by run.sh, which sets
# work (a folder of ours).

THROTTLE_LOOPS=() THROTTLE_GROUP=

# True if there is a controller that can do it.
throttle_possible()
{
	[ "$(id -u)" -eq 0 ] && [ -e /dev/loop-control ] || return 1
	[ -e /sys/fs/cgroup/blkio/blkio.throttle.read_bps_device ] && return
	# Enabled for the children of the root group, or it can be.
	grep -qw io /sys/fs/cgroup/cgroup.controllers 2>/dev/null &&
		echo +io >/sys/fs/cgroup/cgroup.subtree_control
}

# throttle_drive FOLDER BYTES RATE: an ext4 of at least BYTES, mounted on FOLDER.
throttle_drive()
{
	local folder=$1 bytes=$2 rate=$3 image device numbers
	image=$folder.image
	mkdir -p "$folder"
	truncate -s $((bytes + bytes / 8 + (64 << 20))) "$image"
	mkfs.ext4 -q -F -m 0 -O ^has_journal "$image"
	# Direct I/O all the way down: otherwise the page cache behind the loop device is measured.
	device=$(losetup --direct-io=on --show -f "$image")
	THROTTLE_LOOPS+=("$device")
	mount "$device" "$folder"
	numbers=$(lsblk -dn -o MAJ:MIN "$device" | tr -d ' ')
	if [ -e /sys/fs/cgroup/blkio ]; then
		THROTTLE_GROUP=/sys/fs/cgroup/blkio/expertfs-bench-$$
		mkdir -p "$THROTTLE_GROUP"
		echo "$numbers $rate" >"$THROTTLE_GROUP/blkio.throttle.read_bps_device"
	else
		THROTTLE_GROUP=/sys/fs/cgroup/expertfs-bench-$$
		mkdir -p "$THROTTLE_GROUP"
		echo "$numbers rbps=$rate" >"$THROTTLE_GROUP/io.max"
	fi
}

# throttled CMD...: CMD and all it starts, in the group.
throttled()
{
	# shellcheck disable=SC2016
	sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$THROTTLE_GROUP" "$@"
}

# Ends all of it; the file systems are unmounted already, or unused.
throttle_end()
{
	local device i
	for device in "${THROTTLE_LOOPS[@]}"; do
		umount "$device" 2>/dev/null
		losetup -d "$device"
	done
	THROTTLE_LOOPS=()
	[ -n "$THROTTLE_GROUP" ] || return 0
	for ((i = 0; i < 50; i++)); do
		rmdir "$THROTTLE_GROUP" 2>/dev/null && break
		sleep 0.1
	done
	THROTTLE_GROUP=
}
