"""Captures for tests. Some are in the repository, and the others are created with scapy."""

import struct
from pathlib import Path

import pytest

CAPTURES = Path(__file__).resolve().parents[2] / "tests" / "captures"


@pytest.fixture
def captures() -> Path:
    """Returns the directory that contains real captures."""
    return CAPTURES


def classic(
    path: Path, packets: list[bytes], start_ns: int = 1_700_000_000_000_000_000, link: int = 1
) -> Path:
    """Writes packets to a pcap file with nanosecond timestamps, 1 us apart."""
    with path.open("wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, link))
        for number, packet in enumerate(packets):
            seconds, nanoseconds = divmod(start_ns + number * 1000, 1_000_000_000)
            file.write(struct.pack("<IIII", seconds, nanoseconds, len(packet), len(packet)))
            file.write(packet)
    return path


def at(path: Path, packets: list[tuple[int, bytes]], link: int = 1) -> Path:
    """Writes packets to a pcap file, each with a given timestamp in nanoseconds."""
    with path.open("wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, link))
        for time_ns, packet in packets:
            file.write(struct.pack("<IIII", *divmod(time_ns, 1_000_000_000), len(packet), len(packet)))
            file.write(packet)
    return path
