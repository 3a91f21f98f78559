"""Compares the packet table with the packets that scapy reads from the same files."""

import pyarrow
import pytest
from scapy.all import IP, TCP, UDP, Ether, IPv6, RawPcapNgReader, RawPcapReader, raw
from scapy.layers.vxlan import VXLAN

import grosso
from conftest import classic


def seen_by_scapy(path):
    reader = RawPcapNgReader if path.suffix == ".pcapng" else RawPcapReader
    with reader(str(path)) as packets:
        return [data for data, _ in packets]


@pytest.mark.parametrize("name", ["iperf3.pcapng", "host.pcap", "ipv6.pcap", "vxlan.pcapng", "fragments.pcapng"])
def test_bytes_are_those_that_scapy_reads(captures, name):
    table = pyarrow.table(grosso.open(captures / name).packets())
    expected = seen_by_scapy(captures / name)
    assert table["data"].to_pylist() == expected
    assert table["number"].to_pylist() == list(range(1, len(expected) + 1))


@pytest.mark.parametrize("name", ["iperf3.pcapng", "host.pcap", "ipv6.pcap"])
def test_headers_are_those_that_scapy_reads(captures, name):
    rows = pyarrow.table(grosso.open(captures / name).packets(data=False)).to_pylist()
    packets = [Ether(data) for data in seen_by_scapy(captures / name)]
    assert len(rows) == len(packets) > 0
    for row, packet in zip(rows, packets):
        ip = packet[IP] if IP in packet else packet[IPv6]
        assert (row["source"], row["destination"]) == (ip.src, ip.dst)
        assert (row["source_port"], row["destination_port"]) == (packet[TCP].sport, packet[TCP].dport)
        assert row["protocol"] == ("tcp4" if IP in packet else "tcp6")
        length = ip.len - ip.ihl * 4 if IP in packet else ip.plen
        assert row["payload"] == length - packet[TCP].dataofs * 4


def test_times_are_those_of_the_file(tmp_path):
    packet = raw(Ether() / IP(src="10.0.0.1", dst="10.0.0.2") / UDP(sport=1, dport=2) / b"x")
    path = classic(tmp_path / "x.pcap", [packet] * 3)
    times = pyarrow.table(grosso.open(path).packets())["time"]
    assert times.type == pyarrow.timestamp("ns", "UTC")
    assert times.cast(pyarrow.int64()).to_pylist() == [1_700_000_000_000_000_000 + 1000 * i for i in range(3)]


def test_addresses_are_the_innermost_ones_and_null_where_there_are_none(tmp_path):
    inner = Ether() / IP(src="10.1.0.1", dst="10.1.0.2") / UDP(sport=7, dport=8) / b"inner"
    outer = Ether(dst="02:00:00:00:00:01") / IPv6(src="fd00::1", dst="fd00::2") / UDP(sport=9, dport=4789)
    vxlan = outer / VXLAN(vni=5) / inner
    other = Ether(dst="02:00:00:00:00:01", type=0x88B5) / (b"\0" * 60)
    path = classic(tmp_path / "x.pcap", [raw(vxlan), raw(other)])
    first, second = pyarrow.table(grosso.open(path).packets()).to_pylist()
    assert first["protocol"] == "udp6/vxlan/udp4"
    assert (first["source"], first["destination_port"], first["payload"]) == ("10.1.0.1", 8, 5)
    assert (second["source"], second["source_port"], second["payload"]) == (None, None, None)


def test_more_rows_than_a_batch_come_in_order(tmp_path):
    packets = [raw(Ether() / IP(id=i) / UDP(sport=i) / b"x") for i in range(100)]
    path = classic(tmp_path / "x.pcap", packets * 500)
    reader = pyarrow.RecordBatchReader.from_stream(grosso.open(path).packets())
    batches = list(reader)
    assert len(batches) > 1
    table = pyarrow.Table.from_batches(batches)
    assert table["number"].to_pylist() == list(range(1, 50_001))
    assert table["source_port"].to_pylist() == list(range(100)) * 500


def test_a_table_can_be_read_again_and_left_early(tmp_path):
    packet = raw(Ether() / IP() / UDP() / (b"x" * 1400))
    path = classic(tmp_path / "x.pcap", [packet] * 60_000)
    rows = grosso.open(path).packets()
    # If a reader is dropped before it has read most of the file, its thread ends, and the next reader starts from the
    # beginning.
    for _ in range(3):
        reader = pyarrow.RecordBatchReader.from_stream(rows)
        assert reader.read_next_batch()["number"][0].as_py() == 1
        del reader
    assert pyarrow.table(rows).num_rows == 60_000


def test_schema_is_known_without_reading(captures):
    rows = grosso.open(captures / "host.pcap").packets(data=False)
    assert pyarrow.schema(rows) == pyarrow.table(rows).schema
    assert "data" not in pyarrow.schema(rows).names


def test_files_folders_and_filters_are_those_of_the_command(captures, tmp_path):
    one = classic(tmp_path / "a.pcap", [raw(Ether() / IP() / UDP(dport=1))] * 2)
    two = classic(tmp_path / "b.pcap", [raw(Ether() / IP() / TCP(dport=2))] * 3, 1_600_000_000_000_000_000)
    count = lambda *paths, **options: pyarrow.table(grosso.open(*paths, **options).packets()).num_rows
    assert count(one, two) == 5
    assert count(tmp_path) == 5
    # The packets are in chronological order, and the second file is older.
    protocols = pyarrow.table(grosso.open(tmp_path).packets())["protocol"].to_pylist()
    assert protocols == ["tcp4"] * 3 + ["udp4"] * 2
    try:
        assert count(tmp_path, filter="udp") == 2
    except grosso.EnvironmentFailure as failure:
        pytest.skip(f"this machine has no libpcap: {failure}")
