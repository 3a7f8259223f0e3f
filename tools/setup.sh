#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Set-up of a machine, which `make demo` and `make test` run first: the packages to build and to test
# with, and /dev/fuse; with the argument `bench` also what is measured against. Silent and quick when
# all is there. As root it installs what is missing, otherwise it prints the command and fails.
set -u

build='gcc libc6-dev make pkg-config libfuse3-dev fuse3 liburing-dev libsqlite3-dev libjansson-dev
libpcre2-dev libxxhash-dev libutf8proc-dev libncurses-dev'
# valgrind is for the leak run of the tests.
testing='libcmocka-dev python3 valgrind'
# Baselines, loop devices.
[ "${1:-}" != bench ] || testing="$testing fio e2fsprogs mount debootstrap"
# libgomp comes with gcc; clang has its own OpenMP.
case ${CC:-gcc} in
*clang*) build="$build clang libomp-dev" ;;
esac
modules='fuse3 liburing sqlite3 jansson libpcre2-8 libxxhash libutf8proc ncursesw cmocka'

fail()
{
	echo "setup: $*" >&2
	exit 1
}

fuse_device()
{
	[ -e /dev/fuse ] && return
	[ "$(id -u)" -eq 0 ] && modprobe fuse 2>/dev/null && [ -e /dev/fuse ] && return
	echo 'setup: warning: there is no /dev/fuse, so nothing can be mounted here' >&2
}

# Not Debian: nothing is installed; what pkg-config finds decides.
other_system()
{
	missing=
	for module in $modules; do
		pkg-config --exists "$module" 2>/dev/null || missing="$missing $module"
	done
	[ -z "$missing" ] && return
	fail "not a Debian system, and pkg-config does not find$missing;" \
		"install a C compiler, make, pkg-config, python3 and these libraries with headers"
}

missing_packages()
{
	# shellcheck disable=SC2086
	installed=" $(dpkg-query -W -f '${Package} ${db:Status-Status}\n' $build $testing 2>/dev/null |
		sed -n 's/ installed$//p' | tr '\n' ' ')"
	for package in $build $testing; do
		case $installed in
		*" $package "*) ;;
		*) printf ' %s' "$package" ;;
		esac
	done
}

# Another apt may be running on a machine that has just come up: wait for its lock.
apt()
{
	DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 "$@" >>"$log" 2>&1 </dev/null
}

install_packages()
{
	log=$(mktemp) || fail 'no temporary file can be made'
	trap 'rm -f "$log"' EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	echo "setup: installing$1" >&2
	fresh=no
	if ! ls /var/lib/apt/lists/*_Packages* >/dev/null 2>&1; then
		apt update
		fresh=yes
	fi
	# shellcheck disable=SC2086
	apt install -y --no-install-recommends $1 && return
	# Lists that are old name versions that the mirror no longer has.
	# shellcheck disable=SC2086
	[ $fresh = no ] && apt update && apt install -y --no-install-recommends $1 && return
	cat "$log" >&2
	fail "apt-get could not install$1"
}

fuse_device
if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
	other_system
	exit 0
fi
missing=$(missing_packages)
[ -z "$missing" ] && exit 0
if [ "$(id -u)" -ne 0 ]; then
	echo 'setup: packages are missing; install them with' >&2
	echo "sudo apt-get update && sudo apt-get install -y --no-install-recommends$missing" >&2
	exit 1
fi
install_packages "$missing"
