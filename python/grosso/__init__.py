"""Packet captures as they were on the wire, and as a receiving host sees them.

>>> import grosso, pyarrow
>>> capture = grosso.open("send.pcapng")
>>> trains = pyarrow.table(capture.wire().trains())
"""

from grosso import lab
from grosso._capture import Capture, open, profiles
from grosso._error import EnvironmentFailure, Error, InputFailure, MissingFile, UsageFailure
from grosso._native import Rows

__all__ = [
    "Capture",
    "EnvironmentFailure",
    "Error",
    "InputFailure",
    "MissingFile",
    "Rows",
    "UsageFailure",
    "lab",
    "open",
    "profiles",
]
