# shellcheck shell=bash
# shellcheck disable=SC2154,SC2034 # work, mnt and table are set, and what is found here is used, by engine.sh
# SPDX-License-Identifier: Apache-2.0
#
# What the rows of engine.sh are made of: the table, a memory cgroup, the daemon, runs of the engine, fio. Sourced;
# engine.sh sets work (a folder of ours) and mnt.

# rounded EXPRESSION DIGITS
rounded()
{
	awk "BEGIN { printf(\"%.$2f\\n\", ($1)) }"
}

# spread: the least and the greatest of some numbers.
spread()
{
	sort -g | awk 'NR == 1 { least = $1 } END { printf("%.2f to %.2f\n", least, $1) }'
}

# row WHAT MEASURED BASELINE RATIO TO_REACH CONDITION: a line of the table; CONDITION is awk's, empty: only for
# information.
row()
{
	local verdict=''
	[ -z "$6" ] || verdict=$(awk "BEGIN { print ($6) ? \"reached\" : \"MISSED\" }")
	printf '%-54s %16s  %-44s %8s  %-9s %s\n' "$1" "$2" "$3" "$4" "$5" "$verdict" | sed 's/ *$//' | tee -a "$table" >&2
}

# json FILE KEY: a value; KEY is a path: drives.0.gb_per_s.
json()
{
	python3 - "$1" "$2" <<-'END'
		import json, sys
		v = json.load(open(sys.argv[1]))
		for k in sys.argv[2].split("."):
		    v = v[int(k)] if isinstance(v, list) else v[k]
		print(v)
	END
}

# -- a cgroup with little memory and no swap, of version 1 or 2 ------------------------------------------------------------

GROUP='' GROUP_VERSION=2
[ ! -e /sys/fs/cgroup/memory/memory.limit_in_bytes ] || GROUP_VERSION=1
# Before a command: it runs in the group, if there is one.
in_group=(env)

# group_begin BYTES
group_begin()
{
	if [ $GROUP_VERSION = 1 ]; then
		GROUP=/sys/fs/cgroup/memory/bench-engine-$$
		mkdir "$GROUP"
		echo 0 >"$GROUP/memory.swappiness"
		echo "$1" >"$GROUP/memory.limit_in_bytes"
	else
		GROUP=/sys/fs/cgroup/bench-engine-$$
		echo +memory >/sys/fs/cgroup/cgroup.subtree_control
		mkdir "$GROUP"
		echo "$1" >"$GROUP/memory.max"
		[ ! -e "$GROUP/memory.swap.max" ] || echo 0 >"$GROUP/memory.swap.max"
	fi
	# shellcheck disable=SC2016
	in_group=(sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$GROUP")
}

# The most memory that the group ever had, page cache included.
group_peak()
{
	case $GROUP_VERSION in
	1) cat "$GROUP/memory.max_usage_in_bytes" ;;
	2) cat "$GROUP/memory.peak" ;;
	esac
}

group_kills()
{
	case $GROUP_VERSION in
	1) awk '$1 == "oom_kill" { print $2 }' "$GROUP/memory.oom_control" ;;
	2) awk '$1 == "oom_kill" { print $2 }' "$GROUP/memory.events" ;;
	esac
}

# Bytes that are swapped out.
group_swap()
{
	case $GROUP_VERSION in
	1) awk '$1 == "swap" { n = $2 } END { print n + 0 }' "$GROUP/memory.stat" ;;
	2) cat "$GROUP/memory.swap.current" ;;
	esac
}

group_end()
{
	[ -n "$GROUP" ] || return 0
	for _ in $(seq 100); do
		[ -n "$(cat "$GROUP/cgroup.procs")" ] || break
		sleep 0.1
	done
	[ ! -e "$GROUP/memory.force_empty" ] || echo 0 >"$GROUP/memory.force_empty" || true
	rmdir "$GROUP"
	GROUP='' in_group=(env)
}

# -- the daemon ------------------------------------------------------------------------------------------------------------

daemon=

# start STORE|FILE.gguf OPTION...: the daemon, on a store that has learned nothing yet: what the round before used is no help.
start()
{
	local store=$1
	shift
	if [ -d "$store" ]; then
		forget "$store"
	else
		rm -rf --one-file-system "$work/state"
		set -- --state "$work/state" "$@"
	fi
	"${in_group[@]}" expertfs -f --no-warm "$@" "$store" "$mnt" 2>"$work/said" &
	daemon=$!
	for _ in $(seq 200); do
		! mountpoint -q "$mnt" || return 0
		[ -e /proc/$daemon ] || break
		sleep 0.05
	done
	cat "$work/said" >&2
	return 1
}

stop()
{
	umount "$mnt"
	# A mount namespace that was made meanwhile, by whomever, may have a copy of the mount.
	for _ in $(seq 100); do
		[ -e /proc/$daemon ] || break
		sleep 0.1
	done
	[ ! -e /proc/$daemon ] || kill $daemon
	wait $daemon
	daemon=
}

# stat_of KEY: a figure of the daemon's.
stat_of()
{
	json "$mnt/.expertfs/stats.json" "$1"
}

# All experts into memory.
warm()
{
	local total resident before=-1
	total=$(stat_of experts.total)
	echo all >"$mnt/.expertfs/warm"
	while resident=$(stat_of experts.resident) && [ "$resident" -lt "$total" ]; do
		[ "$resident" -gt "$before" ] || [ "$(stat_of experts.loading)" -gt 0 ] || {
			say "only $resident of $total experts came into memory"
			return 1
		}
		before=$resident
		sleep 1
	done
}

# -- the engine, and what it is measured by --------------------------------------------------------------------------------

# ids N: token ids, always the same N.
ids()
{
	shuf -i 256-150000 -n "$1" --random-source="$ROOT/LICENSE" | tr '\n' ' '
}

# run_engine DIR PROMPT_TOKENS NEW_TOKENS SEED OPTION...: its report in $work/run. Tokens are drawn, so that they differ.
run_engine()
{
	local dir=$1 prompt=$2 new=$3 seed=$4
	shift 4
	"${in_group[@]}" coli-engine run "$dir" --prompt-ids "$(ids "$prompt")" -n "$new" --temp 1 --seed "$seed" --json "$@" >"$work/run"
}

# Seconds that the last run took for its prompt and all it made.
run_seconds()
{
	local made
	made=$(python3 -c 'import json, sys; print(len(json.load(open(sys.argv[1]))["ids"]))' "$work/run")
	calc "$(json "$work/run" time_to_first_token_s) + ($made - 1) / $(json "$work/run" decode_tokens_per_s)"
}

# kernel_speeds: the machine at this moment, by tests/bench/kernels: sum_speed, bytes a second of a plain sum over 1 GiB;
# product_speed, of a 4-bit matrix-vector product; cache_speed, multiply-adds a second of the inner loop on data in cache.
kernel_speeds()
{
	kernels >"$work/kernels"
	product_speed=$(awk '/1 row/ { print $4 * 1e9 }' "$work/kernels")
	sum_speed=$(awk '/1 row/ { sub(/.*plain sum /, ""); print $1 * 1e9 }' "$work/kernels")
	cache_speed=$(awk '/in cache/ { print $4 * 1e9 }' "$work/kernels")
}

# facts MODEL_FOLDER: sets active_bytes and active_madds (of weights that one token uses: all but the embedding;
# the head counts for bytes only, as a prompt uses it once), expert_bytes, all_expert_bytes and dense_bytes.
facts()
{
	read -r active_bytes active_madds expert_bytes all_expert_bytes dense_bytes < <(
		python3 - "$1/model.json" <<-'END'
			import json, math, sys
			m = json.load(open(sys.argv[1]))
			c, layout = m["config"], m["experts"]["layouts"][0]
			dense = [t for t in m["dense"]["tensors"] if "embed_tokens" not in t["name"]]
			chosen = c["num_experts_per_tok"] * len(layout["layers"])
			weights = chosen * 3 * c["hidden_size"] * c["moe_intermediate_size"]
			weights += sum(math.prod(t["shape"]) for t in dense if len(t["shape"]) == 2 and t["name"] != "lm_head.weight")
			print(sum(t["bytes"] for t in dense) + chosen * layout["bytes"], weights, layout["bytes"],
			      layout["bytes"] * len(layout["layers"]) * m["experts"]["count"], m["dense"]["bytes"])
		END
	)
}

# fio_speed STORE BYTES: bytes a second of random reads of an expert's size, past the page cache, 16 in flight.
fio_speed()
{
	fio --name=baseline --filename="$1/model.shard" --rw=randread --bs="$expert_bytes" --blockalign=4096 --io_size="$2" \
		--direct=1 --iodepth=16 --ioengine=io_uring --norandommap --output-format=json >"$work/fio.json"
	json "$work/fio.json" jobs.0.read.bw_bytes
}
