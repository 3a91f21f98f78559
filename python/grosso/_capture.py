"""Captures, and commands that process them."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import warnings
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn, Union

from grosso._error import UsageFailure
from grosso._native import Rows, report

PathLike = Union[str, "os.PathLike[str]"]
Scalar = Union[str, int, float, bool, "os.PathLike[str]"]
Option = Union[Scalar, Sequence[Scalar], None]
Report = dict[str, Any]


def open(
    *paths: PathLike,
    filter: str | None = None,
    linktype: str | None = None,
    allow_truncated: bool = False,
) -> Capture:
    """Opens one or more captures, or directories of captures, and reads them as one capture in chronological order.

    ``filter`` is a tcpdump filter expression. ``linktype`` and ``allow_truncated`` are the options of those names.

    This checks the filter, but reads only the beginning of each file.
    """
    words = [_file(path) for path in paths]
    if not words:
        raise TypeError("grosso.open() needs a path: a capture, or a directory of captures")
    reading = _words(linktype=linktype, allow_truncated=allow_truncated)
    capture = Capture(words, _words(filter=filter), reading)
    # Opening the stream opens the files. The stream is dropped before any packet is read.
    capture.packets(data=False).__arrow_c_stream__()
    return capture


def profiles() -> Report:
    """Returns the profiles, which are sets of merge rules."""
    return _report(["profiles"])


class Capture:
    """A capture that can be read any number of times.

    Every method that creates another capture runs the command of the same name, and returns a new ``Capture`` with the
    ``report`` of that command. The packets are written to the file ``write``, or to a temporary file that is deleted
    along with the last capture that needs it. A capture in a temporary file can be neither pickled nor deep-copied.

    ``options`` are the command's options, with underscores: ``strict=True`` is ``--strict``, ``max_size=9000`` is
    ``--max-size 9000``, and ``port=["vxlan=4789", "geneve=6082"]`` is ``--port`` twice. An option that the command does
    not have raises ``UsageFailure``.
    """

    #: The report of the command that created this capture; ``None`` if the capture was opened with ``open``.
    report: Report | None

    def __init__(
        self,
        words: list[str],
        selection: list[str] | None = None,
        reading: list[str] | None = None,
        report: Report | None = None,
        folder: _Folder | None = None,
    ) -> None:
        self._words = words
        self._selection = selection or []
        self._reading = reading or []
        self._folder = folder
        self.report = report

    def __repr__(self) -> str:
        return f"grosso.Capture({', '.join(map(repr, self._words))})"

    @property
    def paths(self) -> list[str]:
        """Returns the files and directories of this capture."""
        return list(self._words)

    # Tables.

    def packets(self, *, data: bool = True, **options: Option) -> Rows:
        """Returns the packets, with their bytes if ``data`` is true. ``options`` are those of ``grosso inspect``."""
        return Rows.packets(self._command("inspect", options), data, self)

    def trains(self, *, profile: PathLike | None = None, **options: Option) -> Rows:
        """Returns the trains into which a receiving host would merge the packets. Each packet is in one train."""
        if options.pop("write", None) is not None:
            raise UsageFailure(
                "trains() has no option write, because it returns a table",
                code="usage",
                exit=2,
                hint="use coalesce(write=...) to write superframes, or export(trains=...) to write the table",
            )
        return Rows.trains(self._command("coalesce", {"profile": profile, **options}), self)

    # Methods that create captures.

    def wire(self, *, write: PathLike | None = None, **options: Option) -> Capture:
        """Restores the packets as they were on the wire: splits superframes, and completes partial checksums."""
        return self._made("wire", write, options)

    def coalesce(
        self, *, profile: PathLike | None = None, write: PathLike | None = None, **options: Option
    ) -> Capture:
        """Merges trains into superframes, as a receiving host does."""
        return self._made("coalesce", write, {"profile": profile, **options})

    def segment(self, *, write: PathLike | None = None, **options: Option) -> Capture:
        """Splits superframes at the recorded segment size."""
        return self._made("segment", write, options)

    def reassemble(self, *, write: PathLike | None = None, **options: Option) -> Capture:
        """Reassembles IP fragments into datagrams."""
        return self._made("reassemble", write, options)

    def fragment(self, *, mtu: int, write: PathLike | None = None, **options: Option) -> Capture:
        """Fragments IP packets that are longer than an MTU."""
        return self._made("fragment", write, {"mtu": mtu, **options})

    def decap(self, *, write: PathLike | None = None, **options: Option) -> Capture:
        """Decapsulates tunneled packets."""
        return self._made("decap", write, options)

    def fix_checksums(self, *, write: PathLike | None = None, **options: Option) -> Capture:
        """Corrects checksums."""
        return self._made("csum fix", write, options)

    # Reports.

    def inspect(self, **options: Option) -> Report:
        """Reports whether the capture shows packets as they were on the wire."""
        return _report(self._command("inspect", options))

    def verify_checksums(self, **options: Option) -> Report:
        """Verifies every checksum."""
        return _report(self._command("csum verify", options))

    def whatif(self, **options: Option) -> Report:
        """Predicts the effect of offloads on this traffic, for several profiles and hold times."""
        return _report(self._command("whatif", options))

    def explain(self, number: int, **options: Option) -> Report:
        """Explains why the packet with this number was merged, or why not."""
        return _report(self._command("explain", options, [str(number)]))

    # Files.

    def export(
        self,
        *,
        parquet: PathLike | None = None,
        trains: PathLike | None = None,
        flows: PathLike | None = None,
        shard: str | None = None,
        **options: Option,
    ) -> Report:
        """Writes Parquet tables of the wire packets, trains and flows, and returns the report.

        The file ``parquet`` gets a row for each packet, ``trains`` for each train, and ``flows`` for each direction of
        a TCP or UDP flow.

        ``shard`` selects a subset of the flows, for example ``2/4``.
        """
        files = {"parquet": parquet, "trains": trains, "flows": flows, "shard": shard}
        return _report(self._command("export", {**files, **options}))

    def _command(
        self, command: str, options: dict[str, Any], more: list[str] | None = None
    ) -> list[str]:
        words = [*command.split(), *self._selection, *self._reading, *_words(**options)]
        # After "--", an argument that begins with a dash is treated as a file name.
        return [*words, "--", *self._words, *(more or [])]

    def _made(self, command: str, write: PathLike | None, options: dict[str, Any]) -> Capture:
        folder = None
        if write is None:
            folder = _Folder()
            write = Path(folder.name) / f"{command.replace(' ', '-')}.pcapng"
        path = _file(write)
        made = _report([*self._command(command, {"write": path, **options})])
        if folder is None:
            for note in made.get("warnings", []):
                warnings.warn(note, stacklevel=3)
        return Capture([path], report=made, folder=folder)


class _Folder:
    """A temporary directory, which is removed with the last capture that needs it."""

    def __init__(self) -> None:
        self.name = tempfile.mkdtemp(prefix="grosso-")
        weakref.finalize(self, shutil.rmtree, self.name, ignore_errors=True)

    def __reduce__(self) -> NoReturn:
        # A shallow copy shares the directory, but a pickled or deep copy would outlive it.
        raise TypeError(
            "a capture in a temporary file can be neither pickled nor deep-copied:"
            " write it with write=PATH, and open that file"
        )


def _file(path: PathLike) -> str:
    """Returns a capture's path as a command-line argument."""
    word = os.fspath(path)
    if word == "-" or Path(word).is_fifo():
        raise UsageFailure(
            f"{word}: the capture must be a file, because a pipe can be read only once",
            code="usage.pipe",
            exit=2,
            hint="pass the path of a file",
        )
    return word


def _words(**options: Any) -> list[str]:
    """Returns options as command-line arguments."""
    words = []
    for name, value in options.items():
        name = "--" + name.replace("_", "-")
        for each in value if isinstance(value, (list, tuple)) else [value]:
            if each is True:
                words.append(name)
            elif each is not None and each is not False:
                words.append(f"{name}={os.fspath(each) if isinstance(each, os.PathLike) else each}")
    return words


def _report(words: list[str]) -> Report:
    text = report(words)
    return json.loads(text) if text else {}
