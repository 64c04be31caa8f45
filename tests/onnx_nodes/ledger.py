"""The ledger: a text file with a line for each node test, ``name pass [(note)]`` or ``name xfail reason``."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

PATH = Path(__file__).parent / "ledger.txt"

_HEAD = """\
# ONNX's node tests, one a line: what Tilewright makes of each. Who changes an operator writes its lines anew:
#     python -m tests.onnx_nodes --update-ledger softmax pool     (words: tests whose names contain one; none: all)
# pass: native code computes the expected outputs, and all inputs arrive at run time.
# pass (constant: shape): the same, but this input is bound at compile time (cases.py: PARAMETERS).
# pass (constant: length): the same, but how many tensors a sequence or an optional has is bound at compile time.
# pass (known from shapes): no input's values matter, so no native code reads one; not counted as native.
# xfail: a clean error says that it is unsupported, and where. Wrong numbers and other errors have no line here.
"""


class Status(Enum):
    PASS = "pass"
    XFAIL = "xfail"
    FAULT = "fault"
    """Wrong numbers, or an error that does not say what is unsupported and where: never acceptable."""


@dataclass(frozen=True, slots=True)
class Outcome:
    status: Status
    note: str = ""
    """Of a pass: what was constant. Else the reason."""

    def __str__(self) -> str:
        note = f"({self.note})" if self.status is Status.PASS and self.note else self.note
        return f"{self.status.value} {note}".strip()


def read(text: str) -> dict[str, Outcome]:
    """The outcomes by name. Raises ``ValueError`` for a malformed or repeated line."""
    found: dict[str, Outcome] = {}
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        name, status, *rest = line.split(" ", 2)
        note = "".join(rest)
        if name in found or not (note or status == "pass") or status not in ("pass", "xfail"):
            raise ValueError(f"the ledger's line can't be read, or repeats a test: {line}")
        found[name] = Outcome(Status(status), note.removeprefix("(").removesuffix(")") if status == "pass" else note)
    return found


def write(outcomes: Mapping[str, Outcome]) -> str:
    """The ledger's text. Every outcome must be acceptable."""
    assert all(found.status is not Status.FAULT for found in outcomes.values())
    return _HEAD + "".join(f"{name} {outcomes[name]}\n" for name in sorted(outcomes))


def summary(outcomes: Mapping[str, Outcome]) -> str:
    """One line: how many of all tests pass."""
    notes = Counter(found.note.partition(":")[0] for found in outcomes.values() if found.status is Status.PASS)
    shapes = notes["known from shapes"]
    native = notes.total() - shapes
    return (
        f"ONNX node tests: {native}/{len(outcomes)} pass natively ({notes['constant']} of them with a parameter bound "
        f"at compile time), {shapes} more are known from shapes"
    )
