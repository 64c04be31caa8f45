"""What the command leaves with."""

from enum import IntEnum


class Status(IntEnum):
    """The exit status; the package's documentation says what each means."""

    DONE = 0
    DIFFERENT = 1
    BAD_INPUT = 2
    INTERNAL = 3
    INTERRUPTED = 130
