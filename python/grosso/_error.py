"""Failures as exceptions: what went wrong, where, and what to do now."""

from __future__ import annotations

import errno
import json


class Error(Exception):
    """A failure of a command.

    Its text is the message, and the remedy if there is one.
    """

    #: A name that programs can match, such as ``input.truncated``.
    code: str
    #: What went wrong.
    message: str
    #: The remedy.
    hint: str | None
    #: The packet in which the input went wrong, counted from 1.
    packet: int | None
    #: The byte at which the input went wrong.
    offset: int | None
    #: Line and column in an input that is text, such as a profile, counted from 1.
    line: int | None
    column: int | None
    #: The exit code of the command.
    exit: int

    def __init__(self, message: str, **facts: object) -> None:
        self.message = message
        self.code = str(facts.get("code", "internal"))
        self.exit = int(str(facts.get("exit", 5)))
        self.hint = facts.get("hint")  # type: ignore[assignment]
        for name in ("packet", "offset", "line", "column"):
            setattr(self, name, facts.get(name))
        super().__init__(message if self.hint is None else f"{message}; hint: {self.hint}")

    @staticmethod
    def of(text: str, **more: object) -> Error:
        """The exception for a failure as the command prints it with ``--json``, and ``more`` facts of it."""
        facts = json.loads(text) | more
        if facts.get("errno") == errno.ENOENT:
            return MissingFile(**facts)
        return _BY_EXIT.get(facts["exit"], Error)(**facts)


class UsageFailure(Error, ValueError):
    """Something impossible was asked for."""


class InputFailure(Error, ValueError):
    """The input is damaged or not supported. What could be written was written."""


class EnvironmentFailure(Error, OSError):
    """Permission, a missing file, a full disk.

    ``errno`` is the system's number for it, where it said one, and ``filename`` the file that it said it of.
    """

    def __init__(self, message: str, **facts: object) -> None:
        super().__init__(message, **facts)
        for name in ("errno", "filename"):
            setattr(self, name, facts.get(name))
            # What is in there is pickled, and set anew.
            vars(self)[name] = facts.get(name)

    # That of ``OSError`` makes a text of its own from the number.
    __str__ = Exception.__str__


class MissingFile(EnvironmentFailure, FileNotFoundError):
    """A file or folder that is not there."""


_BY_EXIT = {2: UsageFailure, 3: InputFailure, 4: EnvironmentFailure}
