#!/usr/bin/env bash
# Records the captures in this directory anew, and writes them to the current directory. iperf3 runs between two hosts
# in network namespaces that are connected by a veth pair. Needs root, iproute2, ethtool, tcpdump, iperf3, and editcap
# and mergecap from Wireshark.
set -euo pipefail

clean_up() {
    ip netns pids grosso-b 2>/dev/null | xargs -r kill || true
    ip netns del grosso-a 2>/dev/null || true
    ip netns del grosso-b 2>/dev/null || true
}

on() { ip netns exec "grosso-$1" "${@:2}"; }

# take NAME HOST PACKETS FILTER IPERF3-ARGUMENTS...
take() {
    on "$2" tcpdump -B 8192 -i "$2" -s 0 -c "$3" -w "$1.pcap" "$4" &
    sleep 1
    on a iperf3 "${@:5}" > /dev/null
    wait $!
}

trap clean_up EXIT
clean_up
ip netns add grosso-a
ip netns add grosso-b
ip link add name a netns grosso-a type veth peer name b netns grosso-b
number=1
for host in a b; do
    on $host ip address add 192.0.2.$number/24 dev $host
    on $host ip address add 2001:db8::$number/64 dev $host nodad
    on $host ip link set dev $host up
    on $host ip link add name v$host type vxlan id 42 dstport 4789 dev $host \
        local 192.0.2.$number remote 192.0.2.$((3 - number))
    on $host ip address add 198.51.100.$number/24 dev v$host
    on $host ip link set dev v$host up
    number=$((number + 1))
done
on b iperf3 -s -D
sleep 1

# On the sender, offloads are on, so tcpdump sees the frames before the device segments them.
take host a 34 tcp -c 192.0.2.2 -n 2M

# On the receiver, offloads are off, so tcpdump sees the packets on the wire.
for host in a b; do
    for device in $host v$host; do
        on $host ethtool -K $device tso off gso off gro off tx off rx off > /dev/null
    done
done
take iperf3 b 250 tcp -c 192.0.2.2 -n 4M -P 2
take ipv6 b 130 "ip6 and tcp" -c 2001:db8::2 -n 2M
take vxlan b 130 "udp port 4789" -c 198.51.100.2 -n 2M

# Datagrams longer than the MTU. The last fragment of the last datagram is missing.
fragments="udp port 5201 or ip[6:2] & 0x1fff != 0 or ip6 proto 44"
take four b 8 "$fragments" -u -c 192.0.2.2 -l 4000 -n 40000
take six b 7 "$fragments" -u -c 2001:db8::2 -l 3000 -n 40000
mergecap -F pcapng -w fragments.pcapng four.pcap six.pcap
rm four.pcap six.pcap

for name in iperf3 vxlan; do
    editcap -F pcapng $name.pcap $name.pcapng
    rm $name.pcap
done
