"""Exports tables from captures with many Dask workers. Install with ``pip install ./python[dask]``.

>>> from dask.distributed import Client
>>> import grosso.dask
>>> with Client("scheduler:8786"):
...     report = grosso.dask.export("ring/", "tables/", shards=16)

Each task handles one shard of the flows, and reads all captures to do so. The results for a packet or a train are
therefore the same as in a single run, regardless of the number of shards and of where the captures are split into
files. If a worker is lost, another one can recreate its tables byte for byte. The merged report is the same as the
report of a single run.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Union

from dask import compute, delayed  # type: ignore[attr-defined,import-not-found,unused-ignore]

from grosso._capture import Capture, Option, PathLike, Report, _report, open

__all__ = ["export"]


def export(
    captures: Union[PathLike, Iterable[PathLike]],
    folder: PathLike,
    *,
    shards: int,
    packets: bool = True,
    trains: bool = True,
    filter: str | None = None,
    linktype: str | None = None,
    allow_truncated: bool = False,
    **options: Option,
) -> Report:
    """Writes a Parquet file per shard to ``packets/`` and ``trains/`` in ``folder``, and returns the merged report.

    ``captures`` and ``folder`` must be paths that every worker can access. The tasks are sent to the current Dask
    client, or to threads in this process if there is none. Parquet readers treat ``folder/packets/`` as one table. When
    sorted by ``number`` and ``segment`` (for trains, by ``train``), it is the same as the table from a single run.
    ``options`` are those of ``grosso export``.

    The report is also written to ``folder/report.json``.
    """
    paths = [captures] if isinstance(captures, (str, os.PathLike)) else list(captures)
    words = [os.path.abspath(path) for path in paths]
    # Invalid arguments are reported before any task starts.
    capture = open(*words, filter=filter, linktype=linktype, allow_truncated=allow_truncated)
    target = Path(os.path.abspath(folder))
    tables = [name for name, is_wanted in (("packets", packets), ("trains", trains)) if is_wanted]
    for name in [*tables, "reports"]:
        (target / name).mkdir(parents=True, exist_ok=True)
    task = delayed(_export_share, pure=False)
    tasks = [task(capture, target, tables, f"{index}/{shards}", options) for index in range(1, shards + 1)]
    reports = compute(*tasks)
    merged = _report(["merge", "--", *reports])
    for left in target.glob("*/.*-of-*"):
        # This file was left behind by a worker that died.
        left.unlink()
    (target / "report.json").write_text(json.dumps(merged) + "\n")
    return merged


def _export_share(
    capture: Capture, folder: Path, tables: list[str], shard: str, options: dict[str, Any]
) -> str:
    """Writes the tables of one shard, and returns the path of the shard's report.

    A file gets its final name only when it is complete, so a worker that dies leaves no partial file under that name.
    """
    index, of = shard.split("/")
    name = f"{int(index):04}-of-{int(of):04}"
    # The leading dot makes programs that read the directory skip the file.
    draft = f".{name}.{os.getpid()}.{uuid.uuid4().hex}"
    drafts = {table: folder / table / draft for table in tables}
    words = {"packets": "parquet", "trains": "trains"}
    named: dict[str, Any] = {words[table]: path for table, path in drafts.items()}
    made = capture.export(shard=shard, **named, **options)
    for table, path in drafts.items():
        whole = path.with_name(f"{name}.parquet")
        os.replace(path, whole)
        made[table]["files"][0]["path"] = str(whole)
    path = folder / "reports" / draft
    path.write_text(json.dumps(made) + "\n")
    whole = path.with_name(f"{name}.json")
    os.replace(path, whole)
    return str(whole)
