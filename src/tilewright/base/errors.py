"""The errors that Tilewright raises. Each kind says who can fix the cause; the text has the remedy.

- ``BadInput``: the user's model, feed, option or te program is wrong. The text names the place and the remedy.
- ``Unsupported``: well-formed, but not implemented by Tilewright. The text names the nearest supported form.
- ``ScheduleError``: a primitive's precondition does not hold; the schedule is untouched.
- ``InternalError``: a fault of Tilewright.
"""

from typing import ClassVar

from tilewright.base.names import bounded, printable

MOST_CHARACTERS = 2_000
"""Maximum length of a message: names in models may have megabytes, and there may be a million of them."""
MOST_OF_PROGRAM = 16_000
"""The same where a program is part of the message: its author wants to see the marked place."""


class TilewrightError(Exception):
    """Base of every error that Tilewright raises on purpose. Its text is printable and of bounded length."""

    most_characters: ClassVar[int] = MOST_CHARACTERS

    def __init__(self, text: str = "") -> None:
        super().__init__(bounded(printable(text), self.most_characters))


class BadInput(TilewrightError):
    """The user's input is wrong."""


class BadProgram(BadInput):
    """A tensor expression or loop program breaks a rule of its IR."""


class BadDTypes(BadProgram):
    """An operation has no meaning for the data types of its operands."""


class ParseError(BadInput):
    """A text (loop program, target, option) can't be read; carries line and column."""


class InvalidModel(BadInput):
    """A model file is malformed."""


class BadFeed(BadInput):
    """An input given to a compiled model has the wrong name, shape or dtype."""


class BadArtifact(BadInput):
    """The parts of a compiled model (objects, manifest, constants) do not fit each other or this machine."""


class CorruptArtifact(BadArtifact):
    """A saved artifact is damaged or altered, or was made for another machine or version of Tilewright."""


class CorruptRecord(BadInput):
    """A record of a measurement, or the database of records, is damaged, altered, or of another version."""


class UntrustedData(BadInput):
    """A file that could run code or read files comes from an untrusted source."""


class ResourceLimit(BadInput):
    """A run or a compilation exceeds a limit of time, memory or elements."""


class OutOfMemory(ResourceLimit, MemoryError):
    """Memory is exhausted."""


class Timeout(ResourceLimit):
    """A run exceeded its timeout; the model can be run again at once."""


class IndexOutOfRange(BadInput):
    """An index in input data is out of range.

    ``where``: the node of the model and its operand; ``index``: its value; ``extent``: that of the dimension.
    """

    def __init__(self, where: str, index: int, extent: int, *, from_end: bool = False) -> None:
        valid = f"{-extent if from_end else 0} .. {extent - 1}" if extent > 0 else "nothing"
        super().__init__(f"{where}: index {index} is out of range; valid is {valid}, as the extent is {extent}")
        self.where = where
        self.index = index
        self.extent = extent
        self.from_end = from_end


class Unsupported(TilewrightError):
    """Well-formed, but not supported."""


class UnsupportedDType(Unsupported):
    """A data type is not supported, or not at this place."""


class UnsupportedModel(Unsupported):
    """A model uses an operator or form that can't be compiled."""


class UnsupportedOperator(UnsupportedModel):
    """A model has an operator that is not known, whatever the sizes of its inputs."""


class UnsupportedKernel(Unsupported):
    """A kernel can't be compiled to native code; ``kernel`` is its name."""

    def __init__(self, kernel: str, reason: str) -> None:
        super().__init__(f"{kernel}: {reason}")
        self.kernel = kernel
        self.reason = reason


class UnsupportedTarget(Unsupported):
    """The target lacks a feature."""


class ScheduleError(TilewrightError):
    """A schedule primitive was refused.

    The text has the primitive, the reason, and the program with the place marked.
    """

    most_characters = MOST_OF_PROGRAM


class MeasureError(TilewrightError):
    """A measurement is impossible because of its reference, its data or the machine, not because of the candidate."""


class FleetError(TilewrightError):
    """A device elsewhere can't be had, or is lost: there is no scheduler, no such device, or the lease has ended."""


class FleetAuthError(BadInput):
    """A fleet and its client do not trust each other, or an address needs certificates."""


class OutOfBounds(TilewrightError):
    """A bounds-checked kernel or the interpreter met an access outside its buffer."""


class InternalError(TilewrightError):
    """A fault of Tilewright itself."""


class NotEquivalent(InternalError):
    """A rewritten graph computes other values; ``value``: the first output that differs."""

    def __init__(self, value: str, reason: str) -> None:
        super().__init__(f"output {value} is not what it was: {reason}")
        self.value = value
        self.reason = reason
