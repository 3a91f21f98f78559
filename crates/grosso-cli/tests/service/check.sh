# Starts each unit, and prints the results as lines of `UNIT KEY VALUE...`.
set -u
ip netns add peer
for wire in udp esp xdp; do
    ip link add "w-$wire" type veth peer name "p-$wire" netns peer
    ip link set "w-$wire" up
    ip -n peer link set "p-$wire" up
done
ip addr add 192.0.2.1/24 dev w-udp
ip -n peer addr add 192.0.2.2/24 dev p-udp
# The peer for UDP is the kernel's own tunnel; the peer for AF_XDP is the other end of the wire.
ip -n peer link add vx type vxlan id 42 local 192.0.2.2 remote 192.0.2.1 dstport 4789
ip -n peer addr add 10.1.1.2/24 dev vx
ip -n peer link set vx up
ip -n peer addr add 10.1.2.2/24 dev p-xdp
# The peer for ESP is another Grosso process, with the same keys in reverse. The wire's interfaces have no addresses,
# and must not answer ARP requests for the addresses of other devices.
for host in "" "ip netns exec peer"; do
    $host sh -c 'echo 1 > /proc/sys/net/ipv4/conf/all/arp_ignore'
done
RUNTIME_DIRECTORY=/run/peer ip netns exec peer grosso run -c /etc/grosso/peer.toml > /tmp/peer 2>&1 &
# AF_XDP cannot indicate that a checksum was left to the device.
ip netns exec peer ethtool -K p-xdp tx off > /dev/null

state() {
    echo "$1 $2 $(systemctl is-active "grosso@$1")"
}

threads() {
    local process thread
    process=$(systemctl show -p MainPID --value "grosso@$1")
    for thread in /proc/"$process"/task/*; do
        echo "$1 thread $(awk -F'[:\t ]+' '/^Name:/ { name = $2 } /^Uid:/ { uid = $3 } /^CapEff:/ { caps = $2 }
            /^NoNewPrivs:/ { privs = $2 } /^Seccomp:/ { filtered = $2 }
            END { print name, uid, caps, privs, filtered }' "$thread/status")"
    done
}

for unit in udp esp xdp; do
    systemctl start "grosso@$unit"
    state "$unit" started
    threads "$unit"
    exposure=$(systemd-analyze security "grosso@$unit" --no-pager | sed -n 's/.*exposure level.*: \([0-9.]*\) .*/\1/p')
    echo "$unit exposure $exposure"
done
ip addr add 10.1.1.1/24 dev t-udp
ip addr add 10.1.2.1/24 dev t-xdp
ip addr add 10.1.3.1/24 dev t-esp
ip -n peer addr add 10.1.3.2/24 dev t-peer
for unit in udp:10.1.1.2 xdp:10.1.2.2 esp:10.1.3.2; do
    busybox ping -q -c 3 -W 5 "${unit#*:}" > /dev/null && echo "${unit%:*} ping yes"
done
for unit in udp esp xdp; do
    echo "$unit stats $(runuser -u grosso -- grosso stats --json "t-$unit" | grep -c rx_packets)"
    systemctl restart "grosso@$unit"
    state "$unit" restarted
    systemctl reload "grosso@$unit"
    state "$unit" reloaded
    threads "$unit"
    systemctl stop "grosso@$unit"
    state "$unit" stopped
    journalctl -u "grosso@$unit" --no-pager -o cat | sed "s/^/$unit journal /"
done
# This unit lacks cpus.conf, without which threads cannot be bound to CPUs. Its error message must say so.
systemctl start grosso@cpus
# When systemd reports that a program has exited, its last output may not be in the journal yet.
journalctl --sync
journalctl -u grosso@cpus --no-pager -o cat | grep -q 'install cpus.conf' && echo "cpus hint yes"
systemctl stop grosso@cpus
kill %1
wait
ls -l /var/lib/grosso /run/grosso
echo end
