"""Measurements of the lab, which is the installed command ``grosso``: hosts of its own in namespaces, on Linux.

>>> import grosso.lab
>>> report = grosso.lab.run("lro", runs=3, time="200ms")
>>> report["verdicts"]
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

from grosso._capture import Option, PathLike, Report, _words
from grosso._error import EnvironmentFailure, Error

__all__ = ["run"]


def run(*words: str, command: PathLike = "grosso", **options: Option) -> Report:
    """Runs ``grosso lab`` and gives its report as a dictionary.

    ``words`` name the experiment, such as ``"lro"``, and none is the one that ``grosso lab`` runs. ``options`` are
    those of the command, with underscores: ``runs=3``, ``time="200ms"``. No page is written unless ``html`` names its
    file. ``command`` is the program: a name that ``PATH`` has, or a path.

    It takes as long as the measurements do. Ctrl-C stops them, and nothing of their hosts is left.
    """
    page: dict[str, Any] = {} if "html" in options else {"no_html": True}
    line = [os.fspath(command), "lab", *words, *_words(json=True, quiet=True, **page, **options)]
    try:
        done = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    except OSError as error:
        raise _not_there(f"{line[0]}: {error.strerror}") from error
    if done.returncode not in _ANSWERS:
        raise _failure(done)
    try:
        report: Report = json.loads(done.stdout)
    except ValueError as error:
        raise _not_there(f"{line[0]}: said no report, so it is another command") from error
    return report


def _not_there(message: str) -> EnvironmentFailure:
    hint = "install the command, or name its path by command=..."
    return EnvironmentFailure(message, code="environment.command", exit=4, hint=hint)


def _failure(done: subprocess.CompletedProcess[str]) -> Error:
    last = done.stderr.strip().rpartition("\n")[2]
    try:
        return Error.of(last, exit=done.returncode)
    except (ValueError, KeyError):
        return Error(last or f"grosso lab ended with {done.returncode} and said nothing", exit=done.returncode)


#: Exit codes of a report: the answer yes, and the answer no.
_ANSWERS = (0, 1)
