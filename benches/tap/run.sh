#!/bin/sh
# Measures one TCP stream of single packets into a TAP, alternating between `grosso bridge` and a prototype written in
# C. Needs root, and the tools ip, ethtool, iperf3, jq, nstat, taskset and cc:
#
#   benches/tap/run.sh GROSSO [OPTION...]      the options are those of `grosso bridge`
#
# If liburing is installed, the prototype also runs with io_uring, with and without registered buffers.
#
# Environment: ROUNDS is the number of runs per program (default 5); SENDER, PATH_CPU and RECEIVER are the CPUs on which
# these three parts run (default 0); REFERENCE is another build of Grosso, which is also measured in each round. The
# script prints one line per run: Gb/s, Gb/s per CPU, CPU-seconds/GB of the path and of all three parts, and
# retransmitted packets. The last lines are the medians.
set -eu
grosso=$1
shift
rounds=${ROUNDS:-5} sender=${SENDER:-0} path_cpu=${PATH_CPU:-0} receiver=${RECEIVER:-0}
a=tap-a-$$ b=tap-b-$$ g=tap-g-$$
scratch=$(mktemp -d)
running=
ticks=$(getconf CLK_TCK)

clean() {
    for process in $running; do kill "$process" 2> /dev/null || true; done
    running=
    for host in $a $b $g; do ip netns del "$host" 2> /dev/null || true; done
}
trap 'clean; rm -rf "$scratch"' EXIT

# spent PROCESS: prints the CPU ticks of the process and its threads, including the kernel's work for them.
spent() {
    awk '{ print $14 + $15 }' "/proc/$1/stat"
}

received() {
    ip -n "$b" -s -j link show t0 | jq '.[0].stats64.rx.bytes'
}

again() {
    ip netns exec "$a" nstat -asz TcpRetransSegs | awk '/Retrans/ { print $2 }'
}

# one NAME COMMAND...: runs a path between veth w0 and TAP t0, and prints its line.
one() {
    name=$1
    shift
    clean
    for host in $a $b $g; do ip netns add "$host"; done
    for host in $a $b; do
        ip netns exec "$host" sysctl -qw net.ipv6.conf.all.disable_ipv6=1
    done
    ip -n "$g" link add w0 type veth peer name w1 netns "$a"
    ip netns exec "$a" ethtool -K w1 tso off > /dev/null
    ip -n "$a" addr add 10.9.0.1/24 dev w1
    ip -n "$a" link set w1 up
    ip -n "$g" link set w0 up
    ip netns exec "$g" taskset -c "$path_cpu" "$@" > "$scratch/path" 2>&1 &
    path=$!
    until ip -n "$g" link show t0 > /dev/null 2>&1; do sleep 0.05; done
    ip -n "$g" link set t0 netns "$b"
    ip -n "$b" addr add 10.9.0.2/24 dev t0
    ip -n "$b" link set t0 up
    ip netns exec "$b" taskset -c "$receiver" iperf3 -s -1 > /dev/null &
    far=$!
    sleep 0.5
    ip netns exec "$a" taskset -c "$sender" iperf3 -C cubic -c 10.9.0.2 -t 4 > /dev/null &
    near=$!
    running="$path $far $near"
    sleep 1
    set -- "$(date +%s.%N)" "$(received)" "$(spent $path)" "$(spent $near)" "$(spent $far)" "$(again)"
    sleep 2
    set -- "$@" "$(date +%s.%N)" "$(received)" "$(spent $path)" "$(spent $near)" "$(spent $far)" "$(again)"
    wait "$near" "$far" || true
    echo "$name $*" | awk -v tick="$ticks" '{
        gb = ($9 - $3) / 1e9; path = ($10 - $4) / tick; all = path + ($11 - $5 + $12 - $6) / tick
        printf "%-10s %.2f Gb/s  %.2f Gb/s a CPU  %.3f s/GB path  %.3f s/GB all  %d retransmitted\n",
            $1, 8 * gb / ($8 - $2), 8 * gb / all, path / gb, all / gb, $13 - $7
    }'
}

# medians NAME: prints the medians of the lines of this program.
medians() {
    for column in 4 8; do
        grep "^$1 " "$scratch/runs" | awk -v column=$column '{ print $column }' | sort -n |
            awk '{ value[NR] = $1 } END { print value[int((NR + 1) / 2)] }'
    done | paste -s -d ' ' | while read -r speed path; do
        echo "median of $1: $speed Gb/s a CPU, $path s/GB path"
    done
}

source=$(dirname "$0")/prototype.c prototypes=prototype
cc -O2 -o "$scratch/prototype" "$source"
if cc -O2 -DURING=1 -o "$scratch/uring" "$source" -luring && cc -O2 -DURING=2 -o "$scratch/registered" "$source" -luring
then
    prototypes="prototype uring registered"
fi
for _ in $(seq "$rounds"); do
    for name in $prototypes; do one "$name" "$scratch/$name" w0 t0 4096; done
    one grosso "$grosso" bridge w0 tap:t0 "$@"
    [ -z "${REFERENCE:-}" ] || one reference "$REFERENCE" bridge w0 tap:t0 "$@"
done | tee "$scratch/runs"
for name in $prototypes grosso ${REFERENCE:+reference}; do medians "$name"; done
