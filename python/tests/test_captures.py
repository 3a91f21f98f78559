"""Tests of captures created from other captures, and of reports and failures."""

import ast
import copy
import errno
import gc
import json
import os
import pickle
import signal
import struct
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import pyarrow
import pytest

import grosso
from grosso import _native


def test_reports_are_dictionaries(captures):
    capture = grosso.open(captures / "iperf3.pcapng")
    assert capture.report is None
    assert capture.inspect()["schema"].startswith("grosso.inspect/")
    assert capture.coalesce().report["schema"].startswith("grosso.coalesce/")
    assert capture.whatif()["schema"].startswith("grosso.whatif/")
    assert capture.explain(20)["packet"]["number"] == 20
    assert capture.verify_checksums()["schema"].startswith("grosso.csum")
    assert "linux" in [profile["name"] for profile in grosso.profiles()["profiles"]]


def test_fragments_are_joined_and_made(captures):
    capture = grosso.open(captures / "fragments.pcapng")
    assert pyarrow.table(capture.reassemble().packets()).num_rows < pyarrow.table(capture.packets()).num_rows
    large = grosso.open(captures / "ipv6.pcap")
    cut = large.fragment(mtu=1280)
    assert max(pyarrow.table(cut.packets())["length"].to_pylist()) <= 1280 + 14
    assert grosso.open(captures / "vxlan.pcapng").decap().report["schema"].startswith("grosso.decap/")


def test_a_capture_is_written_where_it_is_wanted(captures, tmp_path):
    target = tmp_path / "wire.pcapng"
    wire = grosso.open(captures / "host.pcap").wire(write=target)
    assert wire.paths == [str(target)]
    del wire
    gc.collect()
    assert target.exists()


def test_a_temporary_capture_lives_as_long_as_what_needs_it(captures):
    rows = grosso.open(captures / "host.pcap").wire().packets()
    path = Path(rows.capture.paths[0])
    assert path.exists() and pyarrow.table(rows).num_rows > 34
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        del rows
        gc.collect()
    assert not path.exists()
    assert not warned


def test_the_link_type_that_a_capture_is_read_with_is_that_of_what_is_made_of_it(captures, tmp_path):
    whole = (captures / "host.pcap").read_bytes()
    wrong = tmp_path / "wrong.pcap"
    wrong.write_bytes(whole[:20] + struct.pack("<I", 147) + whole[24:])
    expected = pyarrow.table(grosso.open(captures / "host.pcap").wire().packets())["protocol"]
    capture = grosso.open(wrong, linktype="ethernet")
    for name in ("wire.pcap", "wire.pcapng"):
        wire = capture.wire(write=tmp_path / name)
        assert pyarrow.table(wire.packets())["protocol"] == expected
        assert wire.coalesce().report["superframes"] > 0
    # The same holds for a pcapng interface with the wrong link type.
    named = tmp_path / "named.pcapng"
    named.write_bytes(set_link_type((tmp_path / "wire.pcapng").read_bytes(), 147))
    assert set(pyarrow.table(grosso.open(named).packets())["protocol"].to_pylist()) == {None}
    made = grosso.open(named, linktype="ethernet").fix_checksums()
    assert pyarrow.table(made.packets())["protocol"] == expected


def set_link_type(capture, number):
    """Returns a little-endian pcapng file whose interfaces all have this link type."""
    blocks, at = bytearray(capture), 0
    while at < len(blocks):
        kind, length = struct.unpack_from("<II", blocks, at)
        if kind == 1:
            struct.pack_into("<H", blocks, at + 8, number)
        at += length
    return bytes(blocks)


def test_a_capture_in_a_temporary_file_is_copied_as_long_as_the_file_is_there(captures, tmp_path):
    opened = grosso.open(captures / "host.pcap")
    wire = opened.wire()
    path = Path(wire.paths[0])
    for outlive in (copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="write=PATH"):
            outlive(wire)
    shared = copy.copy(wire)
    del wire
    gc.collect()
    assert pyarrow.table(shared.packets()).num_rows > 34
    del shared
    gc.collect()
    assert not path.exists()
    for lasting in (opened, opened.wire(write=tmp_path / "wire.pcap")):
        for made in (copy.deepcopy(lasting), pickle.loads(pickle.dumps(lasting))):
            assert made.packets(data=False).capture.paths == lasting.paths
            assert pyarrow.table(made.packets()) == pyarrow.table(lasting.packets())


def test_an_option_that_repeats_takes_a_list_or_a_tuple(captures):
    capture = grosso.open(captures / "host.pcap")
    for words in (list, tuple):
        report = capture.whatif(profile=words(["linux", "ndis-rsc"]), hold=words(["10us", "20us"]))
        names = {setting["profile"] for setting in report["settings"]}
        assert names == {"linux", "ndis-rsc"}
    assert capture.inspect(port=["vxlan=4789", "geneve=6082"])["schema"].startswith("grosso.inspect/")
    with pytest.raises(grosso.UsageFailure, match="mtu"):
        capture.inspect(mtu=[1500, 9000])
    assert capture.inspect(port=[])["schema"] == capture.inspect()["schema"]


def test_a_table_of_trains_is_written_nowhere(captures, tmp_path):
    capture = grosso.open(captures / "host.pcap")
    with pytest.raises(grosso.UsageFailure, match="write.*hint: .*coalesce") as raised:
        capture.trains(write=tmp_path / "trains.pcapng")
    assert raised.value.exit == 2
    assert pyarrow.table(capture.trains(write=None)).num_rows > 0


def test_what_the_command_notes_of_a_file_is_a_warning(captures, tmp_path):
    capture = grosso.open(captures / "host.pcap")
    with pytest.warns(UserWarning, match="written uncompressed") as warned:
        wire = capture.wire(write=tmp_path / "wire.pcap.gz")
    assert warned[0].filename == __file__
    assert "written uncompressed" in wire.report["warnings"][0]


def test_a_missing_file_is_what_python_calls_one(captures, tmp_path):
    capture = grosso.open(captures / "host.pcap")
    nowhere = tmp_path / "nowhere"
    for reach in (
        lambda: grosso.open(nowhere),
        lambda: grosso.open(captures / "host.pcap", nowhere, filter="tcp"),
        lambda: capture.wire(write=nowhere / "wire.pcap"),
        lambda: capture.coalesce(profile=nowhere / "profile.toml"),
    ):
        with pytest.raises(FileNotFoundError, match="nowhere") as raised:
            reach()
        assert isinstance(raised.value, grosso.EnvironmentFailure)
        assert raised.value.errno == errno.ENOENT
        assert raised.value.filename.startswith(str(nowhere))
        assert str(raised.value).startswith(raised.value.message)
        again = pickle.loads(pickle.dumps(raised.value))
        assert (str(again), again.errno) == (str(raised.value), errno.ENOENT)
        assert again.filename == raised.value.filename


def test_a_pipe_is_refused_because_it_can_be_read_once(captures, tmp_path):
    capture = grosso.open(captures / "host.pcap")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for name in ("-", pipe):
        with pytest.raises(grosso.UsageFailure, match="pipe") as raised:
            grosso.open(captures / "host.pcap", name)
        assert raised.value.code == "usage.pipe" and raised.value.hint
        with pytest.raises(grosso.UsageFailure, match="pipe"):
            capture.wire(write=name)


def test_failures_say_what_where_and_what_now(captures, tmp_path):
    with pytest.raises(grosso.EnvironmentFailure, match="nowhere") as raised:
        grosso.open(tmp_path / "nowhere.pcap")
    assert isinstance(raised.value, OSError) and raised.value.exit == 4
    noise = tmp_path / "noise"
    noise.write_bytes(b"no capture at all")
    with pytest.raises(grosso.InputFailure) as raised:
        grosso.open(noise)
    assert raised.value.code == "input.not_a_capture"
    capture = grosso.open(captures / "iperf3.pcapng")
    with pytest.raises(grosso.UsageFailure, match="linux") as raised:
        capture.trains(profile="linx").__arrow_c_stream__()
    assert raised.value.hint
    with pytest.raises(grosso.UsageFailure, match="no-such"):
        capture.wire(no_such=1)
    with pytest.raises(TypeError):
        grosso.open()


def test_damage_is_told_after_the_rows_before_it(captures, tmp_path):
    whole = (captures / "iperf3.pcapng").read_bytes()
    cut = tmp_path / "cut.pcapng"
    cut.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(pyarrow.ArrowInvalid, match="ends inside packet .*hint: ") as raised:
        pyarrow.table(grosso.open(cut).packets())
    with pytest.raises(grosso.InputFailure) as raised:
        grosso.open(cut).inspect()
    assert raised.value.packet and raised.value.offset
    rows = pyarrow.table(grosso.open(cut, allow_truncated=True).packets())
    assert rows.num_rows == raised.value.packet - 1


def test_python_runs_while_rust_works(captures, tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    content = (captures / "host.pcap").read_bytes()
    # If Rust held the interpreter lock while waiting for the writer, the writer could never start.
    writer = threading.Thread(target=fifo.write_bytes, args=(content,))
    writer.start()
    report = json.loads(_native.report(["inspect", str(fifo)]))
    writer.join()
    assert report["input"]["packets"] == 34


def test_ctrl_c_is_a_keyboard_interrupt(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    # Background processes of a shell without job control ignore SIGINT, and their children inherit this.
    program = f"""
import signal
from grosso import _native
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    _native.report(["inspect", {str(fifo)!r}])
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    # Opening the FIFO succeeds once the child reads from it. Nothing is written.
    with fifo.open("wb"):
        child.send_signal(signal.SIGINT)
        assert child.stdout.readline() == "interrupted\n"
    assert child.wait() == 0


def test_what_ctrl_c_interrupts_is_closed_before_python_goes_on(captures, tmp_path):
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("this system does not list what is open")
    fifo, target = tmp_path / "fifo", tmp_path / "wire.pcap"
    os.mkfifo(fifo)
    program = f"""
import os, signal
from grosso import _native
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    _native.report(["wire", "-r", {str(fifo)!r}, "-w", {str(target)!r}])
except KeyboardInterrupt:
    folder = "/proc/self/fd/"
    open_files = [os.path.realpath(folder + name) for name in os.listdir(folder)]
    print("open" if {str(target)!r} in open_files else "closed", flush=True)
"""
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    with fifo.open("wb") as pipe:
        pipe.write((captures / "host.pcap").read_bytes())
        pipe.flush()
        # Packets that have been read are written before waiting for more.
        while not (target.exists() and target.stat().st_size):
            assert child.poll() is None
        child.send_signal(signal.SIGINT)
        assert child.stdout.readline() == "closed\n"
    assert child.wait() == 0


def test_the_stubs_have_what_the_module_has():
    folder = Path(grosso.__file__).parent
    tree = ast.parse((folder / "_native.pyi").read_text())
    (rows,) = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    stubbed = {node.name for node in rows.body if isinstance(node, ast.FunctionDef)}
    assert all(hasattr(grosso.Rows, name) for name in stubbed)
    public = {name for name in vars(grosso.Rows) if not name.startswith("__")}
    assert public <= stubbed
    assert (folder / "py.typed").exists()


def test_the_notebook_runs(monkeypatch):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    folder = Path(__file__).resolve().parents[1] / "examples"
    monkeypatch.chdir(folder)
    cells = json.loads((folder / "trains.ipynb").read_text())["cells"]
    names = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), "trains.ipynb", "exec"), names)
    lines = names["axes"].get_lines()
    assert len(lines) == len(names["PROFILES"])
    assert all(line.get_ydata()[-1] == 1 for line in lines)
