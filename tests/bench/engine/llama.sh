#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# llama.cpp as Debian sid has it, to measure beside: in a chroot, so that nothing of it comes onto this system, with
# a model of random weights of Qwen3-30B-A3B's sizes (16 GiB).
#
#	llama.sh setup DIR          the chroot DIR/sid; takes a minute or two the first time
#	llama.sh model DIR          the model in it, whose file is told
#	llama.sh bench DIR OPT...   llama-bench OPT..., then a line "NAME TOKENS_PER_S" for each test: pp512, tg16, ...;
#	                            LLAMA_GROUP: a memory cgroup (folder) that it runs in
#
# LLAMA_TYPE is q4_0 (default) or q4_k. LLAMA_LAYERS is for a smaller model, to try things out. The mirror is the one that
# apt uses here, or DEBIAN_MIRROR. As root.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
[ $# -ge 2 ] || {
	echo 'usage: llama.sh setup|model|bench DIR [LLAMA_BENCH_OPTION...]' >&2
	exit 2
}
action=$1
root=$2/sid
shift 2
layers=${LLAMA_LAYERS:-48}
type=${LLAMA_TYPE:-q4_0}
model=srv/30b-a3b-$layers-$type.gguf

setup()
{
	local mirror=${DEBIAN_MIRROR:-}
	[ ! -e "$root/srv/ready" ] || return 0
	command -v debootstrap >/dev/null || {
		echo 'llama.sh: debootstrap is not installed' >&2
		exit 1
	}
	# shellcheck disable=SC2016
	[ -n "$mirror" ] || mirror=$(apt-get indextargets --format '$(LABEL) $(REPO_URI)' | awk '$1 == "Debian" { print $2; exit }')
	[ -n "$mirror" ] || {
		echo 'llama.sh: apt knows no Debian mirror here: name one as DEBIAN_MIRROR' >&2
		exit 1
	}
	rm -rf --one-file-system "$root"
	debootstrap --variant=minbase sid "$root" "$mirror"
	cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
	# A mirror that is a snapshot is older than its Release file says it may be.
	chroot "$root" apt-get -q -o Acquire::Check-Valid-Until=false update
	DEBIAN_FRONTEND=noninteractive chroot "$root" apt-get -q install -y --no-install-recommends \
		llama.cpp python3-gguf python3-numpy
	touch "$root/srv/ready"
}

make_model()
{
	[ -e "$root/$model" ] || {
		cp "$here/make_gguf.py" "$root/srv/"
		chroot "$root" python3 /srv/make_gguf.py "/$model.new" "$layers" "$type" >&2
		mv "$root/$model.new" "$root/$model"
	}
	echo "$root/$model"
}

bench()
{
	[ -z "${LLAMA_GROUP:-}" ] || echo $$ >"$LLAMA_GROUP/cgroup.procs"
	chroot "$root" llama-bench -m "/$model" -o json "$@" 2>"$root/srv/said" >"$root/srv/result" || {
		tail -n 3 "$root/srv/said" >&2
		return 1
	}
	python3 - "$root/srv/result" <<-'END'
		import json, statistics, sys
		for t in json.load(open(sys.argv[1])):
		    name = f"pp{t['n_prompt']}" if t["n_prompt"] else f"tg{t['n_gen']}"
		    print(name, statistics.median(t["samples_ts"]))
	END
}

case $action in
setup) setup >&2 ;;
model) make_model ;;
bench) bench "$@" ;;
*)
	echo "llama.sh: there is no $action" >&2
	exit 2
	;;
esac
