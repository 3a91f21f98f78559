"""Tables of captures by many workers, with Dask: ``pip install ./python[dask]``.

>>> from dask.distributed import Client
>>> import grosso.dask
>>> with Client("scheduler:8786"):
...     report = grosso.dask.export("ring/", "tables/", shards=16)

Each task takes one share of the flows, and reads all captures for it: what it says of a packet or a train is what one
run says, whatever the number of shares and wherever one file ends and the next begins. So the tables of a lost worker
are made again by another, byte by byte, and the merged report is that of one run.
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
    """Writes ``packets/`` and ``trains/`` in ``folder``, a Parquet file for each share, and returns the merged report.

    ``captures`` and ``folder`` are paths that every worker sees. The tasks go to the current Dask client, or to
    threads of this process if there is none. Readers take ``folder/packets/`` as one table; order it by ``number`` and
    ``segment``, or trains by ``train``, and it is that of one run. ``options`` are those of ``grosso export``.

    The report is in ``folder/report.json`` too.
    """
    paths = [captures] if isinstance(captures, (str, os.PathLike)) else list(captures)
    words = [os.path.abspath(path) for path in paths]
    # Wrong words are known before any task is.
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
        # By a worker that died.
        left.unlink()
    (target / "report.json").write_text(json.dumps(merged) + "\n")
    return merged


def _export_share(
    capture: Capture, folder: Path, tables: list[str], shard: str, options: dict[str, Any]
) -> str:
    """Writes the tables of one share, and returns the path of its report.

    A file has its name when it is whole: a worker that dies leaves none that another could take for one.
    """
    index, of = shard.split("/")
    name = f"{int(index):04}-of-{int(of):04}"
    # Hidden, so that readers of the folder pass over it.
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
