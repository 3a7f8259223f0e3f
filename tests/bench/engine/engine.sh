#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# make bench-engine: what the engine reaches, each figure beside a baseline of the same minutes. Arguments choose rows:
# kernels decode prompt stream cold gguf glm (default all). Medians of BENCH_ROUNDS (3) rounds. BENCH_DIR (default TMPDIR or
# /tmp) is on the drive to be measured and needs 42 GB, 87 to keep all: models are made there when a row needs them and
# removed at the end, or kept for the next time with KEEP=1. Needs root and 24 GiB of memory; takes half an hour or so.
# To try the script out: BENCH_LAYERS makes models of so many layers, STREAM_MEMORY and GLM_MEMORY are the daemon's
# --memory in the cgroups.
#
#	kernels  4-bit matrix-vector product over 1 GiB, against a plain sum
#	decode   a model of Qwen3-30B-A3B's sizes, all in memory: against bytes and bandwidth; the mount against a folder,
#	         with half of its layers, so that both are in memory and runs can take turns
#	prompt   the same, 512 tokens: against llama.cpp, and against the kernel's inner loop on data in cache
#	stream   the same in a cgroup of 6 GiB, engine and daemon together: against drive and processor; llama.cpp
#	cold     the same, a prompt of 512 tokens with nothing in memory: what is read, how busy the drive is
#	gguf     a GGUF file of Qwen3-30B-A3B's sizes, Q4_0 and Q4_K, mounted as it is: against llama.cpp on the same file,
#	         all in memory, and in a cgroup of 0.4 of the file
#	glm      GLM-5.2's own sizes in a cgroup of 20 GiB
#
# Weights are random (make_model.c): experts are chosen more evenly than in a model that has learned something, so caches of
# any kind have it harder. 20 tokens choose 52 of the 128 experts of a layer; in the trace of Qwen3-30B-A3B in tests/data they
# choose 39, of six a token.
# Nothing is faster than its bound: a share that says so by more than a tenth was disturbed by other work on the machine,
# and does not count as reached.
set -Eeuo pipefail
shopt -s inherit_errexit

ROOT=$(cd "$(dirname "$0")/../../.." && pwd -P)
BUILD=${BUILD:-build}
case $BUILD in /*) ;; *) BUILD=$ROOT/$BUILD ;; esac
PATH=$BUILD:$BUILD/bench:$PATH
ROUNDS=${BENCH_ROUNDS:-3}
GIB=$((1 << 30))

[ "$(id -u)" -eq 0 ] || {
	echo 'bench-engine: needs root' >&2
	exit 1
}
[ $# -gt 0 ] || set -- kernels decode prompt stream cold gguf glm
for name; do
	case $name in
	kernels | decode | prompt | stream | cold | gguf | glm) ;;
	*)
		echo "bench-engine: no row $name; there are kernels decode prompt stream cold gguf glm" >&2
		exit 2
		;;
	esac
done

# Models outlive a run with KEEP=1; all else is in work.
models=${BENCH_DIR:-${TMPDIR:-/tmp}}/bench-engine
mkdir -p "$models"
models=$(cd "$models" && pwd -P)
exec 9>"$models/lock"
flock -n 9 || {
	echo "bench-engine: another one is at work in $models" >&2
	exit 1
}
work=$models/work.$$
mnt=$work/mnt
mkdir -p "$mnt" "$work/plain"
table=$work/table
: >"$table"
# shellcheck source=tests/bench/lib.sh
. "$ROOT/tests/bench/lib.sh"
# shellcheck source=tests/bench/engine/lib.sh
. "$ROOT/tests/bench/engine/lib.sh"

leave()
{
	local status=$?
	trap '' INT TERM
	trap - ERR
	set +e
	cd /
	! mountpoint -q "$mnt" || umount "$mnt" || umount -l "$mnt"
	! mountpoint -q "$work/plain" || umount "$work/plain" || umount -l "$work/plain"
	[ -z "$daemon" ] || {
		kill "$daemon" 2>/dev/null
		wait "$daemon"
	}
	group_end
	rm -rf --one-file-system "$work"
	[ "${KEEP:-0}" = 1 ] || rm -rf --one-file-system "$models"
	exit $status
}
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'echo "engine.sh:$LINENO: failed: $BASH_COMMAND" >&2' ERR

# room GB WHAT: makes sure of that much disk; models other than WHAT go if they must.
room()
{
	local need=$(($1 * 1000000)) other
	for other in glm llama half 30b; do
		[ "$(df --output=avail "$models" | tail -n 1)" -lt $need ] || return 0
		[ "$other" != "$2" ] || continue
		case $other in
		llama) rm -f "$models"/sid/srv/*.gguf ;;
		*) rm -rf --one-file-system "${models:?}/$other" ;;
		esac
	done
	[ "$(df --output=avail "$models" | tail -n 1)" -ge $need ] || {
		say "$models needs $1 GB of free disk for $2"
		return 1
	}
}

layers=()

# model 30b|half|glm: makes it if it is not there. half: 30b with half of its layers.
model()
{
	local preset=30b-a3b gb=18 number=${BENCH_LAYERS:-}
	case $1 in
	half) gb=9 number=$((${BENCH_LAYERS:-48} / 2)) ;;
	glm) preset=glm-5.2 gb=42 ;;
	esac
	layers=(${number:+--num_hidden_layers "$number"})
	[ "$(cat "$models/$1/ready" 2>/dev/null || echo none)" = "${layers[*]}" ] || {
		rm -rf --one-file-system "${models:?}/$1"
		room $gb "$1"
		say "making $1"
		make_model --preset $preset "${layers[@]}" "$models/$1"
		echo "${layers[*]}" >"$models/$1/ready"
	}
	facts "$models/$1"
}

llama()
{
	LLAMA_LAYERS=${BENCH_LAYERS:-48} "$ROOT/tests/bench/engine/llama.sh" "$1" "$models" "${@:2}"
}

# llama_model q4_0|q4_k: the model for the calls of llama that follow; sets gguf to its file. There is one at a time.
llama_model()
{
	export LLAMA_TYPE=$1
	say "llama.cpp: chroot and $1 model"
	llama setup 2>"$work/setup" || {
		tail -n 5 "$work/setup" >&2
		return 1
	}
	gguf=$models/sid/srv/30b-a3b-${BENCH_LAYERS:-48}-$1.gguf
	[ -e "$gguf" ] || {
		rm -f "$models"/sid/srv/*.gguf
		room 18 llama
	}
	gguf=$(llama model)
}

# The model's files in memory: a tmpfs of huge pages, as the daemon's hot store is one.
plain_begin()
{
	local bytes
	bytes=$((all_expert_bytes + all_expert_bytes / 16 + dense_bytes + GIB / 8))
	# The kernel would rather end a process than refuse a page of tmpfs.
	[ "$(awk '$1 == "MemAvailable:" { printf("%.0f", $2 * 1024) }' /proc/meminfo)" -gt $((bytes + 2 * GIB)) ] || {
		say "$((bytes / GIB + 2)) GiB of memory have to be free"
		return 1
	}
	mount -t tmpfs -o size=$bytes,huge=always bench-engine "$work/plain"
	make_model --preset 30b-a3b "${layers[@]}" --plain "$work/plain"
}

plain_end()
{
	umount "$work/plain"
}

# resident_begin 30b|half: the mount with all experts in memory.
resident_begin()
{
	cold_caches
	start "$models/$1" --memory $((all_expert_bytes + all_expert_bytes / 64 + GIB / 8))
	warm
}

# decode_seconds DIR SEED: a token, when all is in memory.
decode_seconds()
{
	run_engine "$1" 16 48 "$2" --ctx 256
	calc "1 / $(json "$work/run" decode_tokens_per_s)"
}

bench_kernels()
{
	local product sum
	say 'kernels'
	for ((i = 0; i < ROUNDS; i++)); do
		kernel_speeds
		echo "$product_speed" >>"$work/kernels.product"
		echo "$sum_speed" >>"$work/kernels.sum"
		calc "$product_speed / $sum_speed" >>"$work/kernels.ratio"
	done
	product=$(rounded "$(median <"$work/kernels.product") / 1e9" 2)
	sum=$(rounded "$(median <"$work/kernels.sum") / 1e9" 2)
	share=$(rounded "$(median <"$work/kernels.ratio")" 2)
	row '4-bit matrix-vector, 1 GiB, all cores' "$product GB/s" "a plain sum: $sum GB/s" "$share" 0.85 "$share >= 0.85"
}

# Mount and folder a pair at a time: minutes apart the machine is another. Both are in memory, hence half.
mount_ratio()
{
	local plain mounted
	model half
	cold_caches
	plain_begin
	resident_begin half
	for ((i = 0; i <= 4 * ROUNDS; i++)); do
		say "decode: pair $i of $((4 * ROUNDS))"
		plain=$(decode_seconds "$work/plain" $i)
		mounted=$(decode_seconds "$mnt" $i)
		[ $i -eq 0 ] || calc "$mounted / $plain" >>"$work/decode.ratio"
	done
	stop
	plain_end
}

bench_decode()
{
	local plain mounted share ratio
	model 30b
	for ((i = 1; i <= ROUNDS; i++)); do
		say "decode: round $i"
		cold_caches
		plain_begin
		kernel_speeds
		plain=$(decode_seconds "$work/plain" $i)
		plain_end
		echo "$plain" >>"$work/decode.plain"
		echo "$sum_speed" >>"$work/decode.sum"
		calc "$plain * $sum_speed / $active_bytes" >>"$work/decode.share"
		resident_begin 30b
		kernel_speeds
		mounted=$(decode_seconds "$mnt" $i)
		stop
		echo "$mounted" >>"$work/decode.mount"
		calc "$mounted * $sum_speed / $active_bytes" >>"$work/decode.mountshare"
	done
	share=$(rounded "$(median <"$work/decode.share")" 2)
	row '30b-a3b in memory, decode, plain folder on tmpfs' "$(rounded "1000 * $(median <"$work/decode.plain")" 1) ms/token" \
		"$(rounded "$active_bytes / 1e9" 2) GB at $(rounded "$(median <"$work/decode.sum") / 1e9" 2) GB/s" "$share" 1.15 "$share <= 1.15 && $share > 0.9"
	row '  through the mount' "$(rounded "1000 * $(median <"$work/decode.mount")" 1) ms/token" \
		'the same' "$(rounded "$(median <"$work/decode.mountshare")" 2)" '' ''
	mount_ratio
	ratio=$(rounded "$(median <"$work/decode.ratio")" 2)
	row '  mount against folder, in turns, half the layers' '' "pairs: $(spread <"$work/decode.ratio")" "$ratio" 1.05 "$ratio <= 1.05"
}

bench_prompt()
{
	local rate peak share theirs decode
	llama_model q4_0
	cold_caches
	say 'prompt: llama.cpp'
	llama bench -t "$(nproc)" -p 512 -n 16 -r "$ROUNDS" -lm none >"$work/prompt.llama"
	theirs=$(awk '$1 == "pp512" { print $2 }' "$work/prompt.llama")
	model 30b
	resident_begin 30b
	for ((i = 1; i <= ROUNDS; i++)); do
		say "prompt: round $i"
		kernel_speeds
		run_engine "$mnt" 512 16 $i --ctx 640
		json "$work/run" prompt_tokens_per_s >>"$work/prompt.rate"
		json "$work/run" decode_tokens_per_s >>"$work/prompt.decode"
		echo "$cache_speed" >>"$work/prompt.peak"
		calc "$(json "$work/run" prompt_tokens_per_s) * $active_madds / $cache_speed" >>"$work/prompt.share"
	done
	stop
	rate=$(median <"$work/prompt.rate")
	peak=$(median <"$work/prompt.peak")
	decode=$(median <"$work/prompt.decode")
	share=$(rounded "$(median <"$work/prompt.share")" 2)
	row '30b-a3b in memory, prompt of 512' "$(rounded "$rate" 1) tokens/s" "llama.cpp: $(rounded "$theirs" 1) tokens/s" \
		"$(rounded "$rate / $theirs" 2)" 2 "$rate >= 2 * $theirs"
	row '  multiply-adds' "$(rounded "$rate * $active_madds / 1e9" 1) G/s" "inner loop in cache: $(rounded "$peak / 1e9" 1) G/s" \
		"$share" 0.7 "$share >= 0.7"
	theirs=$(awk '$1 == "tg16" { print $2 }' "$work/prompt.llama")
	row '  decode after it' "$(rounded "$decode" 2) tokens/s" "llama.cpp, empty context: $(rounded "$theirs" 2) tokens/s" \
		"$(rounded "$decode / $theirs" 2)" '' ''
}

# streamed STORE SECONDS_TO_COMPUTE NEW_TOKENS SEED OPTION...: one run of the engine in the group on a mount that has
# to read. Sets took (seconds), missed (bytes that were read and used), rate (fio's) and share (of the bound).
streamed()
{
	local store=$1 compute=$2 new=$3 seed=$4 read wasted
	shift 4
	rate=$(fio_speed "$store" $((2 * GIB)))
	read=$(stat_of bytes_read)
	wasted=$(stat_of prefetch.wasted)
	run_engine "$mnt" 1 "$new" "$seed" "$@"
	missed=$(calc "$(stat_of bytes_read) - $read - $expert_bytes * ($(stat_of prefetch.wasted) - $wasted)")
	took=$(run_seconds)
	rate=$(calc "($rate + $(fio_speed "$store" $((2 * GIB)))) / 2")
	share=$(awk "BEGIN { d = $missed / $rate; c = $new * $compute; printf(\"%.4f\\n\", (d > c ? d : c) / $took) }")
}

# What must hold of a cgroup at its end: nobody killed, nothing swapped, and no more memory than its limit.
group_row()
{
	local peak kills swap
	peak=$(group_peak)
	kills=$(group_kills)
	swap=$(group_swap)
	row "$1: most memory, killed, swapped" "$(rounded "$peak / $GIB" 2) GiB, $kills, $swap" "the cgroup's limit: $(($2 / GIB)) GiB" \
		'' '<= limit' "$peak <= $2 && $kills == 0 && $swap == 0"
}

bench_stream()
{
	local compute new=24 theirs
	model 30b
	say 'stream: all in memory first, for the time that computing takes'
	resident_begin 30b
	for ((i = 1; i <= ROUNDS; i++)); do
		run_engine "$mnt" 1 $new $i --ctx 256
		calc "$(run_seconds) / $new" >>"$work/stream.compute"
	done
	stop
	compute=$(median <"$work/stream.compute")
	group_begin $((6 * GIB))
	cold_caches
	start "$models/30b" --memory "${STREAM_MEMORY:-4000M}"
	run_engine "$mnt" 1 12 99 --ctx 256 # fills the memory
	for ((i = 1; i <= ROUNDS; i++)); do
		say "stream: round $i"
		streamed "$models/30b" "$compute" $new $i --ctx 256
		calc "$new / $took" >>"$work/stream.rate"
		calc "$rate / 1e9" >>"$work/stream.fio"
		calc "$missed / $new / 1e9" >>"$work/stream.missed"
		echo "$share" >>"$work/stream.share"
	done
	stop
	share=$(rounded "$(median <"$work/stream.share")" 2)
	row '30b-a3b in 6 GiB, decode: share of the bound' "$(rounded "$(median <"$work/stream.rate")" 2) tokens/s" \
		"$(rounded "$(median <"$work/stream.missed")" 3) GB/token, fio $(rounded "$(median <"$work/stream.fio")" 2) GB/s; computing $(rounded "1000 * $compute" 0) ms" \
		"$share" 0.85 "$share >= 0.85 && $share < 1.1"
	group_row '  the cgroup' $((6 * GIB))
	group_end
	llama_model q4_0
	group_begin $((6 * GIB))
	cold_caches
	say 'stream: llama.cpp'
	LLAMA_GROUP=$GROUP llama bench -t "$(nproc)" -p 0 -n 3 -r 1 -lm mmap --repack 0 --no-warmup >"$work/stream.llama"
	group_end
	theirs=$(awk '$1 == "tg3" { print $2 }' "$work/stream.llama")
	row '  llama.cpp in 6 GiB, mmap' "$(rounded "$theirs" 3) tokens/s" 'coli-engine, so many times faster' \
		"$(rounded "$(median <"$work/stream.rate") / $theirs" 1)" '' ''
}

bench_cold()
{
	local chosen read seconds busy ratio
	model 30b
	for ((i = 1; i <= ROUNDS; i++)); do
		say "cold: round $i"
		group_begin $((6 * GIB))
		cold_caches
		start "$models/30b" --memory "${STREAM_MEMORY:-4000M}"
		run_engine "$mnt" 512 1 $i --ctx 640
		seconds=$(json "$work/run" time_to_first_token_s)
		read=$(stat_of bytes_read)
		# layer,expert,heat,uses,...
		chosen=$(awk -F , '$4 + 0 > 0' "$mnt/.expertfs/usage" | wc -l)
		# The drive's speed over the time in which it had something to do gives that time.
		calc "$read / 1e9 / $(stat_of drives.0.gb_per_s) / $seconds" >>"$work/cold.busy"
		calc "$read / ($chosen * $expert_bytes)" >>"$work/cold.ratio"
		calc "512 / $seconds" >>"$work/cold.rate"
		calc "$read / 1e9" >>"$work/cold.read"
		echo "$chosen" >>"$work/cold.chosen"
		stop
		calc "$read / $(fio_speed "$models/30b" $((4 * GIB))) / $seconds" >>"$work/cold.fio"
		[ "$i" -lt "$ROUNDS" ] || group_row '30b-a3b in 6 GiB, cold prompt' $((6 * GIB))
		group_end
	done
	ratio=$(rounded "$(sort -g "$work/cold.ratio" | tail -n 1)" 4)
	busy=$(rounded "$(median <"$work/cold.busy")" 2)
	row '  prompt of 512: bytes read, the most of the rounds' "$(rounded "$(median <"$work/cold.read")" 2) GB" \
		"$(median <"$work/cold.chosen") experts chosen, once each" "$ratio" 1 "$ratio <= 1"
	row '  drive busy' "$(rounded "$(median <"$work/cold.rate")" 1) tokens/s" 'the time of the prompt' "$busy" 0.9 "$busy >= 0.9"
	row '  time of the bytes at the speed of fio' '' 'the time of the prompt' "$(rounded "$(median <"$work/cold.fio")" 2)" '' ''
}

# gguf_in_memory TYPE: prompts of 512, and tokens made from an empty context, of the engine on a mount of $gguf.
gguf_in_memory()
{
	local prompt decode theirs
	cold_caches
	say "gguf $1: llama.cpp in memory"
	llama bench -t "$(nproc)" -p 512 -n 64 -r "$ROUNDS" -lm none >"$work/gguf.llama"
	cold_caches
	start "$gguf" --memory $(($(stat -c %s "$gguf") + GIB / 2))
	warm
	rm -f "$work"/gguf.prompt "$work"/gguf.decode
	for ((i = 1; i <= ROUNDS; i++)); do
		say "gguf $1: round $i"
		run_engine "$mnt" 512 1 $i --ctx 640
		json "$work/run" prompt_tokens_per_s >>"$work/gguf.prompt"
		run_engine "$mnt" 1 65 $i --ctx 640
		json "$work/run" decode_tokens_per_s >>"$work/gguf.decode"
	done
	stop
	prompt=$(median <"$work/gguf.prompt")
	decode=$(median <"$work/gguf.decode")
	theirs=$(awk '$1 == "tg64" { print $2 }' "$work/gguf.llama")
	row "GGUF $1 in memory, decode" "$(rounded "$decode" 2) tokens/s" "llama.cpp: $(rounded "$theirs" 2) tokens/s" \
		"$(rounded "$decode / $theirs" 2)" 1 "$decode >= $theirs"
	theirs=$(awk '$1 == "pp512" { print $2 }' "$work/gguf.llama")
	row '  prompt of 512' "$(rounded "$prompt" 1) tokens/s" "llama.cpp: $(rounded "$theirs" 1) tokens/s" \
		"$(rounded "$prompt / $theirs" 2)" 1.5 "$prompt >= 1.5 * $theirs"
}

gguf_in_little_memory()
{
	local limit ours theirs
	limit=$(($(stat -c %s "$gguf") * 2 / 5))
	group_begin $limit
	cold_caches
	start "$gguf" --memory "${GGUF_MEMORY:-$((limit - 2 * GIB))}"
	run_engine "$mnt" 1 12 99 --ctx 256 # fills the memory
	rm -f "$work/gguf.stream"
	for ((i = 1; i <= ROUNDS; i++)); do
		say "gguf $1 in little memory: round $i"
		run_engine "$mnt" 1 24 $i --ctx 256
		json "$work/run" decode_tokens_per_s >>"$work/gguf.stream"
	done
	stop
	group_row "GGUF $1, a cgroup of 0.4 of the file" $limit
	group_end
	group_begin $limit
	cold_caches
	say "gguf $1 in little memory: llama.cpp"
	LLAMA_GROUP=$GROUP llama bench -t "$(nproc)" -p 0 -n 3 -r 1 -lm mmap --repack 0 --no-warmup >"$work/gguf.llama"
	group_end
	ours=$(median <"$work/gguf.stream")
	theirs=$(awk '$1 == "tg3" { print $2 }' "$work/gguf.llama")
	row '  decode' "$(rounded "$ours" 2) tokens/s" "llama.cpp, mmap: $(rounded "$theirs" 3) tokens/s" \
		"$(rounded "$ours / $theirs" 1)" 8 "$ours >= 8 * $theirs"
}

bench_gguf()
{
	local type
	for type in q4_0 q4_k; do
		llama_model $type
		gguf_in_memory $type
		gguf_in_little_memory $type
	done
}

bench_glm()
{
	local new=6
	model glm
	group_begin $((20 * GIB))
	cold_caches
	kernel_speeds
	say 'glm: loading'
	start "$models/glm" --memory "${GLM_MEMORY:-1G}"
	for ((i = 1; i <= ROUNDS; i++)); do
		say "glm: round $i"
		streamed "$models/glm" "$(calc "$active_bytes / $sum_speed")" $new $i --ctx 64
		calc "$new / $took" >>"$work/glm.rate"
		calc "$rate / 1e9" >>"$work/glm.fio"
		calc "$missed / $new / 1e9" >>"$work/glm.missed"
		echo "$share" >>"$work/glm.share"
	done
	stop
	row 'GLM-5.2 in 20 GiB, decode: share of the bound' "$(rounded "$(median <"$work/glm.rate")" 3) tokens/s" \
		"$(rounded "$(median <"$work/glm.missed")" 2) GB/token, fio $(rounded "$(median <"$work/glm.fio")" 2) GB/s" \
		"$(rounded "$(median <"$work/glm.share")" 2)" '' ''
	group_row '  the cgroup' $((20 * GIB))
	group_end
}

for name; do
	"bench_$name"
done
printf '\n%s, %s CPUs, Linux %s, %s rounds\n\n' "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)" "$(nproc)" "$(uname -r)" "$ROUNDS"
printf '%-54s %16s  %-44s %8s  %s\n' '' measured baseline ratio 'to reach'
cat "$table"
