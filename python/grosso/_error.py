"""Failures as exceptions, with the cause, the location and a remedy."""

from __future__ import annotations

import errno
import json


class Error(Exception):
    """A command failure.

    As a string, it is the message, followed by the remedy if there is one.
    """

    #: A code that identifies the failure for programs, such as ``input.truncated``.
    code: str
    #: The cause.
    message: str
    #: The remedy.
    hint: str | None
    #: The number of the packet that caused the error, starting at 1.
    packet: int | None
    #: The offset of the error in the input, in bytes.
    offset: int | None
    #: Line and column of the error in text input such as a profile, starting at 1.
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
        """Returns the exception for a failure that a command printed with ``--json``, plus the attributes ``more``."""
        facts = json.loads(text) | more
        if facts.get("errno") == errno.ENOENT:
            return MissingFile(**facts)
        return _BY_EXIT.get(facts["exit"], Error)(**facts)


class UsageFailure(Error, ValueError):
    """An invalid or impossible request."""


class InputFailure(Error, ValueError):
    """Damaged or unsupported input. The output contains everything that could still be written."""


class EnvironmentFailure(Error, OSError):
    """A system error, such as a missing permission, a missing file or a full disk.

    ``errno`` is the system's error number, if there is one, and ``filename`` is the affected file.
    """

    def __init__(self, message: str, **facts: object) -> None:
        super().__init__(message, **facts)
        for name in ("errno", "filename"):
            setattr(self, name, facts.get(name))
            # Pickle stores the attributes here and restores them.
            vars(self)[name] = facts.get(name)

    # ``OSError.__str__`` would build the string from ``errno``.
    __str__ = Exception.__str__


class MissingFile(EnvironmentFailure, FileNotFoundError):
    """A missing file or directory."""


_BY_EXIT = {2: UsageFailure, 3: InputFailure, 4: EnvironmentFailure}
