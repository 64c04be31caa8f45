"""Exit statuses of the command."""

from enum import IntEnum


class Status(IntEnum):
    """Exit status; the docstring of ``tilewright.cli`` has their meanings."""

    DONE = 0
    DIFFERENT = 1
    BAD_INPUT = 2
    UNSUPPORTED = 3
    INTERNAL = 4
    UNPROVED = 5
    INTERRUPTED = 130
    BROKEN_PIPE = 141
