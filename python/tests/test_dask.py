"""Compares tables written by four worker processes, one of which dies, with the tables from a single run."""

import json
import os
import random
import signal
import threading
import time
from pathlib import Path

import pyarrow
import pyarrow.parquet as pq
import pytest
from scapy.all import IP, TCP, UDP, Ether, raw

import grosso
from conftest import at
from grosso._capture import _report

distributed = pytest.importorskip("distributed")
grosso_dask = pytest.importorskip("grosso.dask")

SHARDS = 6
#: Columns that identify where a packet was captured.
PLACES = ["interface", "file", "frame", "offset"]


@pytest.fixture(scope="module")
def client():
    with distributed.LocalCluster(n_workers=4, threads_per_worker=1, dashboard_address=None) as cluster:
        with distributed.Client(cluster) as client:
            yield client


@pytest.fixture(scope="module")
def traffic():
    """Returns packets from 24 bidirectional flows, with gaps, losses and single datagrams, at different times."""
    print("seed", seed := random.randrange(1 << 32))
    chance = random.Random(seed)
    sequences = dict.fromkeys(range(24), 1)
    packets = []
    for number in range(40_000):
        flow = chance.randrange(24)
        ends = IP(src=f"10.0.{flow}.1", dst="10.1.0.2", id=number % 65536)
        if flow % 4 == 0:
            packet = ends / UDP(sport=1000 + flow, dport=53) / bytes(chance.randrange(1, 200))
        elif chance.random() < 0.2:
            ends = IP(src="10.1.0.2", dst=f"10.0.{flow}.1")
            packet = ends / TCP(sport=443, dport=1000 + flow, ack=sequences[flow], flags="A")
        else:
            lost = chance.random() < 0.02
            header = TCP(sport=1000 + flow, dport=443, seq=sequences[flow] + lost * 700, ack=1, flags="A")
            packet = ends / header / bytes(700)
            sequences[flow] += 700 * (1 + lost)
        packets.append((1_700_000_000_000_000_000 + number * 1000, raw(Ether(dst="02:00:00:00:00:02") / packet)))
    return packets, chance


def cut(packets, chance, folder):
    """Writes the same packets to several files, split at arbitrary positions."""
    folder.mkdir()
    places = sorted({0, len(packets), *(chance.randrange(1, len(packets)) for _ in range(5))})
    for number, (start, end) in enumerate(zip(places, places[1:])):
        at(folder / f"{number:02}.pcap", packets[start:end])
    return folder


def kill_one_in_the_middle(folder, killed):
    """Kills the first worker whose table is half written, and adds its process to `killed`."""
    until = time.monotonic() + 120
    while time.monotonic() < until and not killed:
        for draft in Path(folder).glob("packets/.*-of-*"):
            process = int(draft.name.split(".")[2])
            os.kill(process, signal.SIGKILL)
            if draft.exists():
                killed.append(process)
                return
        time.sleep(0.001)


def counted(report):
    """Returns a merged report without the values that vary from run to run: paths and elapsed times."""
    report = json.loads(json.dumps(report))
    del report["elapsed_s"]
    for table in ("packets", "trains"):
        report[table]["files"] = [file["bytes"] for file in report[table]["files"]]
    return report


def test_tables_of_four_workers_are_those_of_one_run_for_any_cut_though_one_dies(client, traffic, tmp_path):
    packets, chance = traffic
    ring = cut(packets, chance, tmp_path / "ring")
    before = set(client.run(os.getpid).values())
    killed = []
    killer = threading.Thread(target=kill_one_in_the_middle, args=(tmp_path / "tables", killed))
    killer.start()
    report = grosso_dask.export(ring, tmp_path / "tables", shards=SHARDS)
    killer.join()
    assert killed and killed[0] in before
    assert not list((tmp_path / "tables").glob("*/.*"))

    # For the same shards, a single process writes the same files and the same report, byte for byte.
    capture = grosso.open(ring)
    (alone := tmp_path / "alone").mkdir()
    made = []
    for index in range(1, SHARDS + 1):
        files = {"parquet": alone / f"p{index}", "trains": alone / f"t{index}"}
        made.append(alone / f"{index}.json")
        made[-1].write_text(json.dumps(capture.export(**files, shard=f"{index}/{SHARDS}")))
        for name, path in zip(("packets", "trains"), files.values()):
            by_worker = tmp_path / "tables" / name / f"{index:04}-of-{SHARDS:04}.parquet"
            assert by_worker.read_bytes() == path.read_bytes()
    assert counted(report) == counted(_report(["merge", *map(str, made)]))
    assert json.loads((tmp_path / "tables" / "report.json").read_text()) == report

    # After sorting, a run without shards produces the same rows, and so does a run on one unsplit file.
    whole = grosso.open(at(tmp_path / "whole.pcap", packets))
    for name, option, keys in (("packets", "parquet", ["number", "segment"]), ("trains", "trains", ["train"])):
        tables = pq.read_table(tmp_path / "tables" / name)
        tables = tables.sort_by([(key, "ascending") for key in keys]).combine_chunks()
        capture.export(**{option: alone / "one"})
        assert tables.equals(pq.read_table(alone / "one").combine_chunks())
        whole.export(**{option: alone / "uncut"})
        uncut = pq.read_table(alone / "uncut").drop_columns(PLACES)
        assert tables.drop_columns(PLACES).equals(uncut.combine_chunks())
    one = alone / "one.json"
    one.write_text(json.dumps(capture.export(parquet=alone / "p", trains=alone / "t")))
    of_one = counted(_report(["merge", str(one)]))
    for table in ("packets", "trains"):
        assert report[table]["counts"] == of_one[table]["counts"]
    assert report["packets"]["counts"]["rows"] == len(packets)


def test_failures_of_workers_are_those_of_the_command(client, tmp_path):
    path = at(tmp_path / "x.pcap", [(1000, raw(Ether() / IP() / UDP()))] * 9)
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(grosso.InputFailure, match="8 packets were processed and written") as caught:
        grosso_dask.export(path, tmp_path / "tables", shards=2)
    assert (caught.value.code, caught.value.exit, caught.value.packet) == ("input.truncated", 3, 9)
    with pytest.raises(grosso.UsageFailure):
        grosso_dask.export(path, tmp_path / "tables", shards=2, no_such_option=True)
    with pytest.raises(grosso.EnvironmentFailure):
        grosso_dask.export(tmp_path / "nowhere", tmp_path / "tables", shards=2)
