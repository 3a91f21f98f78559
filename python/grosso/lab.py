"""Lab measurements between hosts in network namespaces, made with the installed ``grosso`` command on Linux.

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
    """Runs ``grosso lab`` and returns its report as a dictionary.

    ``words`` selects the experiment, such as ``"lro"``. Without it, the default experiment of ``grosso lab`` is run.
    ``options`` are the command's options, with underscores: ``runs=3``, ``time="200ms"``. An HTML page is written only
    if ``html`` specifies a file. ``command`` is the program to run: a name to be found in ``PATH``, or a path.

    The function returns when the measurements are complete. Ctrl-C stops the measurements and removes their hosts.
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
        raise _not_there(f"{line[0]}: not the grosso command, because it printed no report") from error
    return report


def _not_there(message: str) -> EnvironmentFailure:
    hint = "install the command, or set its path with command=..."
    return EnvironmentFailure(message, code="environment.command", exit=4, hint=hint)


def _failure(done: subprocess.CompletedProcess[str]) -> Error:
    last = done.stderr.strip().rpartition("\n")[2]
    try:
        return Error.of(last, exit=done.returncode)
    except (ValueError, KeyError):
        return Error(last or f"grosso lab exited with {done.returncode} and printed no message", exit=done.returncode)


#: Exit codes with which the command prints a report: 0 means "yes", and 1 means "no".
_ANSWERS = (0, 1)
