"""Measures how many packets per second are read into Arrow: `python arrow.py [PACKETS]`.

Packets of 64 and of 1514 bytes are measured, each three times with the file in the page cache, and compared with
scapy's fastest reader, which does not dissect packets.
"""

import sys
import tempfile
import time
from pathlib import Path

import pyarrow
from scapy.all import IP, TCP, Ether, RawPcapReader, raw

import grosso

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from conftest import classic  # noqa: E402


def frames(count, payload):
    base = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / IP(src="10.0.0.1", dst="10.0.0.2")
    distinct = [
        raw(base / TCP(sport=flow, dport=443, seq=1 + number * payload, ack=1, flags="A") / (b"x" * payload))
        for number in range(32)
        for flow in range(1, 33)
    ]
    return [distinct[number % len(distinct)] for number in range(count)]


def rate(count, work):
    rates = []
    for _ in range(3):
        start = time.perf_counter()
        work()
        rates.append(count / (time.perf_counter() - start) / 1e6)
    return " ".join(f"{each:.2f}" for each in sorted(rates))


def drain(rows):
    for batch in pyarrow.RecordBatchReader.from_stream(rows):
        del batch


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        for payload in (10, 1460):
            packets = count if payload == 10 else count // 4
            path = classic(Path(folder) / "x.pcap", frames(packets, payload))
            capture = grosso.open(path)
            print(f"{packets} packets of {54 + payload} bytes, million a second")
            print(f"  packets(), batch by batch       {rate(packets, lambda: drain(capture.packets()))}")
            print(f"  packets(data=False)             {rate(packets, lambda: drain(capture.packets(data=False)))}")
            print(f"  packets() as one table          {rate(packets, lambda: pyarrow.table(capture.packets()))}")
            print(f"  trains()                        {rate(packets, lambda: drain(capture.trains()))}")
            few = packets // 10
            some = classic(Path(folder) / "y.pcap", frames(few, payload))
            print(f"  scapy, bytes alone              {rate(few, lambda: sum(1 for _ in RawPcapReader(str(some))))}")


main()
