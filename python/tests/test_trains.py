"""Compares trains and superframes with packets created by scapy, and with fixed numbers."""

import pyarrow
import pyarrow.compute as pc
import pytest
from scapy.all import IP, TCP, Ether, raw

import grosso
from conftest import classic


def stream(segments, size=1000):
    """Returns a TCP stream in full-size segments, created by scapy."""
    base = Ether() / IP(src="10.0.0.1", dst="10.0.0.2")
    return [
        raw(base / TCP(sport=1, dport=2, seq=1 + i * size, ack=1, flags="A") / (bytes([i]) * size))
        for i in range(segments)
    ]


def test_a_stream_becomes_one_train(tmp_path):
    path = classic(tmp_path / "x.pcap", stream(10))
    (train,) = pyarrow.table(grosso.open(path).trains()).to_pylist()
    assert train["numbers"] == list(range(1, 11))
    assert (train["packets"], train["segment_size"], train["payload"]) == (10, 1000, 10_000)
    assert train["length"] == 14 + 20 + 20 + 10_000
    assert (train["source"], train["destination_port"]) == ("10.0.0.1", 2)
    assert (train["end"] - train["time"]).microseconds == 9


@pytest.mark.parametrize("profile", ["linux", "ndis-uro"])
@pytest.mark.parametrize("name", ["iperf3.pcapng", "host.pcap", "ipv6.pcap", "vxlan.pcapng", "fragments.pcapng"])
def test_every_packet_is_in_one_train(captures, name, profile):
    capture = grosso.open(captures / name)
    table = pyarrow.table(capture.trains(profile=profile))
    numbers = pc.list_flatten(table["numbers"]).to_pylist()
    assert sorted(numbers) == pyarrow.table(capture.packets(data=False))["number"].to_pylist()


def test_trains_are_those_of_the_command_s_report(captures):
    capture = grosso.open(captures / "iperf3.pcapng")
    report = capture.coalesce().report
    table = pyarrow.table(capture.trains())
    joined = table.filter(pc.greater(table["packets"], 1))
    assert joined.num_rows == report["superframes"]
    assert pc.sum(joined["packets"]).as_py() == report["superframe_packets"]
    closed = {row["values"]: row["counts"] for row in pc.value_counts(table["closed"]).to_pylist()}
    expected = {name: count for name, count in report["closed"].items() if count}
    assert {name: closed.get(name) for name in expected} == expected


def test_coalesce_and_segment_give_every_packet_back(captures):
    capture = grosso.open(captures / "iperf3.pcapng")
    superframes = capture.coalesce()
    table = pyarrow.table(superframes.packets(data=False))
    assert pc.sum(table["packets"]).as_py() == superframes.report["superframe_packets"]
    back = superframes.segment()
    key = lambda table: sorted(table["data"].to_pylist())
    assert key(pyarrow.table(back.packets())) == key(pyarrow.table(capture.packets()))


def test_wire_makes_what_scapy_finds_whole(captures):
    capture = grosso.open(captures / "host.pcap")
    assert capture.inspect()["verdict"]["wire_faithful"] is False
    wire = capture.wire()
    assert wire.inspect()["verdict"]["wire_faithful"] is True
    for data in pyarrow.table(wire.packets())["data"].to_pylist():
        packet = Ether(data)
        said = packet[TCP].chksum
        assert packet[IP].len <= 1500
        del packet[TCP].chksum
        assert Ether(raw(packet))[TCP].chksum == said


def test_trains_of_two_link_types_keep_their_headers(tmp_path):
    frames = stream(4)
    one = classic(tmp_path / "ethernet.pcap", frames)
    two = classic(tmp_path / "raw.pcap", [frame[14:] for frame in frames], link=101)
    trains = pyarrow.table(grosso.open(one, two).trains()).to_pylist()
    assert sorted(train["length"] for train in trains) == [4040, 4054]
    assert [(train["protocol"], train["source"]) for train in trains] == [("tcp4", "10.0.0.1")] * 2
