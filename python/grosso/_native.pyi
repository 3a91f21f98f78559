"""The part of the package that is written in Rust."""

from typing import final

from grosso._capture import Capture

@final
class Rows:
    """A table that is read again each time its rows are requested.

    It is accepted by every consumer of Arrow C streams, such as ``pyarrow.table(rows)``, ``polars.DataFrame(rows)``, or
    DuckDB, which finds the table by the name of the Python variable.
    """

    #: The capture from which the rows are read.
    @property
    def capture(self) -> Capture: ...
    @staticmethod
    def packets(words: list[str], data: bool, capture: Capture) -> Rows: ...
    @staticmethod
    def trains(words: list[str], capture: Capture) -> Rows: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...
    def __arrow_c_schema__(self) -> object: ...

def report(words: list[str]) -> str:
    """Runs a command, and returns its report as JSON."""
