"""Reads Parquet tables with other programs, and compares them with what scapy and tshark say about the captures."""

import datetime
import json
import re
import shutil
import struct
import subprocess
from pathlib import Path

import jsonschema
import pyarrow
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from scapy.all import IP, TCP, UDP, Ether, IPv6, raw

import grosso
from conftest import at, classic

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "export.md"


def export(capture, folder, **options):
    """Returns the tables of packets and of trains, and the report."""
    packets, trains = folder / "packets.parquet", folder / "trains.parquet"
    report = capture.export(parquet=packets, trains=trains, **options)
    return pq.read_table(packets), pq.read_table(trains), report


def test_reports_obey_their_published_schema(captures, tmp_path):
    schema = json.loads((ROOT / "crates/grosso-cli/schemas/export.json").read_text())
    for name in ["host.pcap", "fragments.pcapng"]:
        *_, report = export(grosso.open(captures / name), tmp_path)
        jsonschema.validate(report, schema)
        assert set(report) == set(schema["properties"])
    report["packets"]["counts"]["rows"] = "many"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(report, schema)


def test_rows_of_flows_are_those_of_coalesce(captures, tmp_path):
    path = tmp_path / "flows.parquet"
    report = grosso.open(captures / "iperf3.pcapng").export(flows=path)
    table = pq.read_table(path).to_pylist()
    assert len(table) == report["flows"]["counts"]["rows"] == 4
    largest = max(table, key=lambda row: row["bytes"])
    assert (largest["protocol"], largest["source"], largest["segment_size"]) == ("tcp", "192.0.2.1", 1448)
    assert (largest["packets"], largest["cause"], largest["lost_before"]) == (126, None, 0)
    assert (largest["merged_trains"], largest["ended"], largest["ended_trains"]) == (11, "psh", 8)
    assert largest["held_p50_ns"] <= largest["held_p99_ns"]


def plain(name, captures, tmp_path):
    """Returns the packets in a capture according to tshark: timestamps, lengths and innermost TCP headers."""
    if shutil.which("tshark") is None:
        pytest.skip("tshark is not installed")
    fields = "frame.time_epoch frame.len ip.src ip.dst ipv6.src ipv6.dst tcp.srcport tcp.dstport tcp.len".split()
    words = [word for field in fields for word in ("-e", field)]
    wire = grosso.open(captures / name).wire(write=tmp_path / "wire.pcapng")
    words = ["tshark", "-r", str(tmp_path / "wire.pcapng"), "-T", "fields", "-E", "separator=;", *words]
    lines = subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines()
    del wire
    last = lambda text: text.split(",")[-1] or None
    return [[last(field) for field in line.split(";")] for line in lines]


@pytest.mark.parametrize("name", ["iperf3.pcapng", "host.pcap", "ipv6.pcap", "vxlan.pcapng"])
def test_rows_are_the_packets_of_the_wire_as_tshark_sees_them(captures, tmp_path, name):
    expected = plain(name, captures, tmp_path)
    table, _, report = export(grosso.open(captures / name), tmp_path)
    rows = table.to_pylist()
    assert len(rows) == len(expected) == report["packets"]["counts"]["rows"] > 0
    for row, nanoseconds, fields in zip(rows, table["time"].cast(pyarrow.int64()).to_pylist(), expected):
        time, length, ip4, to4, ip6, to6, source, destination, payload = fields
        seconds, fraction = time.split(".")
        assert nanoseconds == int(seconds) * 1_000_000_000 + int(fraction.ljust(9, "0"))
        assert row["length"] == int(length)
        if source is None:
            continue
        assert (row["source"], row["destination"]) == ((ip4, to4) if ip4 else (ip6, to6))
        assert (row["source_port"], row["destination_port"]) == (int(source), int(destination))
        assert row["payload"] == int(payload)


def test_rows_of_superframes_say_where_they_were(captures, tmp_path):
    table, _, report = export(grosso.open(captures / "host.pcap"), tmp_path)
    cut = [row for row in table.to_pylist() if row["segment"] is not None]
    frames = {number: list(rows) for number, rows in _by_number(cut).items()}
    split = grosso.open(captures / "host.pcap").wire().report["superframes"]
    assert (len(frames), len(cut)) == (split["split"], split["segments"])
    assert report["packets"]["counts"]["segments"] == split["segments"]
    for rows in frames.values():
        assert [row["segment"] for row in rows] == list(range(1, len(rows) + 1))
        assert {row["packets"] for row in rows} == {len(rows)}
        assert {(row["segment_size"], row["evidence"], row["checksum"]) for row in rows} == {(1448, "syn", "partial")}
        assert [row["payload"] for row in rows[:-1]] == [1448] * (len(rows) - 1)


def _by_number(rows):
    found = {}
    for row in rows:
        found.setdefault(row["number"], []).append(row)
    return found


@pytest.mark.parametrize("name", ["iperf3.pcapng", "host.pcap", "vxlan.pcapng", "fragments.pcapng"])
def test_trains_are_those_of_the_package_and_the_report(captures, tmp_path, name):
    capture = grosso.open(captures / name)
    _, trains, report = export(capture, tmp_path)
    assert trains.equals(pyarrow.table(capture.trains()))
    assert trains["train"].to_pylist() == list(range(1, trains.num_rows + 1))
    numbers = pc.list_flatten(trains["numbers"]).to_pylist()
    assert sorted(numbers) == list(range(1, report["input"]["packets"] + 1))
    counts = report["trains"]["counts"]
    for column in ("closed", "why"):
        values = pc.value_counts(trains[column].drop_null()).to_pylist()
        assert {row["values"]: row["counts"] for row in values} == counts[column]
    sizes = pc.value_counts(trains["packets"]).to_pylist()
    assert {str(row["values"]): row["counts"] for row in sizes} == counts["sizes"]


def test_a_train_is_held_at_least_until_its_last_packet(captures, tmp_path):
    trains = export(grosso.open(captures / "iperf3.pcapng"), tmp_path)[1]
    first, last = (trains[name].cast(pyarrow.int64()).to_pylist() for name in ("time", "end"))
    held = trains["held_ns"].to_pylist()
    assert max(held) > 0
    assert all(held >= last - first for held, first, last in zip(held, first, last))


def test_a_retransmission_is_an_event(tmp_path):
    base = lambda number: Ether() / IP(src="10.0.0.1", dst="10.0.0.2", id=number)
    numbered = enumerate([1, 1001, 1, 2001])
    packets = [raw(base(i) / TCP(sport=1, dport=2, seq=seq, ack=1, flags="A") / (b"x" * 1000)) for i, seq in numbered]
    table, _, report = export(grosso.open(classic(tmp_path / "x.pcap", packets)), tmp_path)
    assert table["event"].to_pylist() == [None, None, "retransmitted", None]
    assert report["packets"]["counts"]["events"] == {"retransmitted": 1}


def test_why_is_the_word_of_explain(captures, tmp_path):
    capture = grosso.open(captures / "iperf3.pcapng")
    trains = export(capture, tmp_path)[1].to_pylist()
    alone = [row for row in trains if row["closed"] == "never"]
    ended = [row for row in trains if row["closed"] == "no_merge"]
    assert alone and ended
    for row in alone:
        assert capture.explain(row["numbers"][0])["decision"]["reason"] == row["why"]
    for row in ended:
        by = capture.explain(row["numbers"][0])["ended"]["by"]
        assert capture.explain(by)["decision"]["reason"] == row["why"]


def test_trains_of_superframes_have_the_packets_of_the_wire(captures, tmp_path):
    capture = grosso.open(captures / "host.pcap")
    packets, trains, _ = export(capture, tmp_path)
    assert pc.sum(trains["packets"]).as_py() == packets.num_rows == 146


def test_checksums_that_scapy_made_are_valid_and_a_changed_one_is_bad(tmp_path):
    # Outside tunnels, UDP over IPv6 must have a checksum (RFC 8200 section 8.1).
    base = Ether() / IP(src="10.0.0.1", dst="10.0.0.2")
    packets = [raw(base / UDP(sport=i, dport=9) / bytes([i] * 40)) for i in range(1, 6)]
    packets[2] = packets[2][:-1] + b"\xff"
    packets.append(raw(Ether() / IPv6(src="fd00::1", dst="fd00::2") / UDP(sport=1, dport=2, chksum=0) / b"x"))
    table, _, report = export(grosso.open(classic(tmp_path / "x.pcap", packets)), tmp_path)
    assert table["checksum"].to_pylist() == ["valid", "valid", "bad", "valid", "valid", "bad"]
    assert report["packets"]["counts"]["checksums"] == {"valid": 4, "bad": 2}


@pytest.mark.parametrize("filter", [None, "udp"])
def test_every_row_names_the_bytes_that_it_comes_from(tmp_path, filter):
    frames = [raw(Ether() / IP() / (UDP if i % 3 else TCP)() / bytes(i)) for i in range(100)]
    folder = tmp_path / "ring"
    folder.mkdir()
    # The files overlap in time, so their packets are interleaved.
    one = at(folder / "a.pcap", [(2000 * i, frame) for i, frame in enumerate(frames)])
    two = at(folder / "b.pcap", [(3000 * i, frame) for i, frame in enumerate(frames)])
    try:
        capture = grosso.open(folder, filter=filter)
    except grosso.EnvironmentFailure as failure:
        pytest.skip(f"this machine has no libpcap: {failure}")
    table, trains, _ = export(capture, tmp_path)
    contents = {str(path): path.read_bytes() for path in (one, two)}
    expected = [data for data in pyarrow.table(capture.packets())["data"].to_pylist()]
    assert table.num_rows == (200 if filter is None else 132) == len(expected)
    assert len(set(table["file"].to_pylist())) == 2
    for row, data in zip(table.to_pylist(), expected):
        start = row["offset"]
        seconds, fraction, captured, length = struct.unpack_from("<IIII", contents[row["file"]], start)
        assert contents[row["file"]][start + 16 : start + 16 + captured] == data
        assert (length, frames[row["frame"] - 1]) == (row["length"], data)
        assert row["time"].timestamp() == pytest.approx(seconds + fraction / 1e9)
    places = {(row["file"], row["frame"]): row["number"] for row in table.to_pylist()}
    for row in trains.to_pylist():
        assert places[row["file"], row["frame"]] == row["numbers"][0]


def test_shares_are_the_rows_of_one_run_each_once(captures, tmp_path):
    paths = [captures / name for name in ("iperf3.pcapng", "host.pcap", "vxlan.pcapng", "fragments.pcapng")]
    capture = grosso.open(*paths)
    whole = export(capture, tmp_path)[:2]
    shares = []
    for index in range(1, 6):
        (folder := tmp_path / str(index)).mkdir()
        shares.append(export(capture, folder, shard=f"{index}/5")[:2])
    for table, parts, keys in zip(whole, zip(*shares), (["number", "segment"], ["train"])):
        assert sum(part.num_rows > 0 for part in parts) > 1
        merged = pyarrow.concat_tables(parts).sort_by([(key, "ascending") for key in keys])
        assert merged.combine_chunks().equals(table.combine_chunks())


def test_a_table_says_its_version_and_has_groups_of_bounded_size(tmp_path):
    packets = [raw(Ether() / IP() / UDP(sport=i) / b"x") for i in range(300)]
    path = classic(tmp_path / "x.pcap", packets * 1000)
    table = tmp_path / "packets.parquet"
    report = grosso.open(path).export(parquet=table)
    file = pq.ParquetFile(table)
    assert file.metadata.metadata[b"grosso.table"] == b"packets/1"
    assert (file.metadata.num_rows, file.metadata.num_row_groups) == (300_000, 2)
    assert report["packets"]["files"] == [{"path": str(table), "bytes": table.stat().st_size}]
    assert report["trains"] is None


def test_damage_ends_the_tables_behind_what_came_before(tmp_path):
    path = classic(tmp_path / "x.pcap", [raw(Ether() / IP() / UDP(sport=i)) for i in range(50)])
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(grosso.InputFailure, match="49 packets were processed and written") as caught:
        export(grosso.open(path), tmp_path)
    assert (caught.value.code, caught.value.exit) == ("input.truncated", 3)
    assert pq.read_table(tmp_path / "packets.parquet").num_rows == 49
    assert pq.read_table(tmp_path / "trains.parquet").num_rows == 49
    assert export(grosso.open(path, allow_truncated=True), tmp_path)[0].num_rows == 49


def test_failures_say_which_file_and_what_now(captures, tmp_path):
    capture = grosso.open(captures / "iperf3.pcapng")
    copy = tmp_path / "copy.pcapng"
    copy.write_bytes((captures / "iperf3.pcapng").read_bytes())
    for words, options, code in [
        ("no output file", {}, "usage.output"),
        ("cannot write a table to a pipe", {"parquet": "-"}, "usage.output"),
        ("same file", {"parquet": tmp_path / "x", "trains": tmp_path / "x"}, "usage.same_file"),
        ("nowhere.*No such file or directory$", {"trains": tmp_path / "nowhere" / "x"}, "environment.write"),
        ("expected a shard I/N", {"parquet": tmp_path / "x", "shard": "5/4"}, "usage"),
    ]:
        with pytest.raises(grosso.Error, match=words) as caught:
            capture.export(**options)
        assert caught.value.code == code
    with pytest.raises(grosso.UsageFailure, match="same file"):
        grosso.open(copy).export(parquet=copy)
    assert copy.read_bytes() == (captures / "iperf3.pcapng").read_bytes()
    if Path("/dev/full").exists():
        with pytest.raises(grosso.EnvironmentFailure, match="/dev/full: No space left on device$"):
            capture.export(parquet="/dev/full")


def test_reports_of_other_commands_and_of_other_runs_are_not_merged(captures, tmp_path):
    import json

    from grosso._capture import _report

    capture = grosso.open(captures / "iperf3.pcapng")
    share = lambda index, of, **options: capture.export(parquet=tmp_path / "x", shard=f"{index}/{of}", **options)

    def merge(*reports):
        paths = [tmp_path / f"{number}.json" for number in range(len(reports))]
        for path, report in zip(paths, reports):
            path.write_text(json.dumps(report))
        return _report(["merge", *map(str, paths)])

    one, two = share(1, 2), share(2, 2)
    assert merge(two, one)["packets"]["counts"] == share(1, 1)["packets"]["counts"]
    for words, reports in [
        ("shard 2/2 is missing", [one]),
        ("shard 1/2 was passed twice", [one, one]),
        ("from a run with 3 shards, but other reports are from a run with 2", [one, share(2, 3)]),
        ("not shards of one run: profile differs", [one, share(2, 2, profile="ndis-uro")]),
        ("not shards of one run: trains differs", [one, share(2, 2, trains=tmp_path / "y")]),
        ("not shards of one run: input differs", [one, share(2, 2, hash=True)]),
        ("grosso.coalesce/1 cannot be merged", [capture.coalesce().report, two]),
        ('not a report: the field "schema" is missing', [{}]),
    ]:
        with pytest.raises(grosso.Error, match=words):
            merge(*reports)


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)


@pytest.fixture
def archive(tmp_path, monkeypatch):
    """Returns the tables of two flows over two minutes. One flow has gaps in the second minute; one checksum is bad."""
    start = int(datetime.datetime(2026, 11, 25, 10, 31, tzinfo=datetime.timezone.utc).timestamp())
    packets = []
    for minute in range(2):
        for step in range(64):
            for port in (1001, 1002):
                # Drop every other segment of the first flow.
                stride = 2 if (minute, port) == (1, 1001) else 1
                sequence = 1 + (minute * 1000 + step * stride) * 1000
                header = IP(src="10.0.0.1", dst="10.0.0.2") / TCP(sport=port, dport=2, seq=sequence, ack=1, flags="A")
                time_ns = (start + 60 * minute) * 1_000_000_000 + step * 10_000 + port
                packets.append((time_ns, raw(Ether() / header / (b"x" * 1000))))
    bad = raw(Ether() / IP(src="10.0.0.9", dst="10.0.0.2") / UDP(sport=7, dport=7) / b"damaged")[:-1] + b"!"
    packets.append(((start + 100) * 1_000_000_000, bad))
    export(grosso.open(at(tmp_path / "x.pcap", packets)), tmp_path)
    monkeypatch.chdir(tmp_path)


def test_the_questions_of_the_document_have_these_answers_in_duckdb(archive):
    duckdb = pytest.importorskip("duckdb")
    queries = blocks("sql")
    lost, frames, checksums = (duckdb.sql(query).fetchall() for query in queries)
    assert [(row[1], row[6]) for row in lost] == [(1001, "tcp_sequence_ahead")]
    assert lost[0][4] > 8 and lost[0][5] == 1.0
    assert len(frames) == 20 and {row[5] for row in frames} == {"tcp_sequence_ahead"}
    assert checksums[0][:3] == ("10.0.0.9", "10.0.0.2", "bad")


def test_the_question_of_the_document_has_the_same_answer_in_polars(archive):
    pytest.importorskip("polars")
    (code,) = blocks("python")
    names = {}
    exec(code, names)
    (row,) = names["answer"].to_dicts()
    assert (row["source_port"], row["why"], row["per_train"]) == (1001, "tcp_sequence_ahead", 1.0)
