"""The text of targets: `x86_64,znver5,-avx512bf16,cores=8`."""

from collections.abc import Iterator

from fuzz.target import Target
from tilewright.base.processors import PROCESSORS
from tilewright.target.target import Target as Machine


def check(data: bytes) -> None:
    """What is parsed prints as text that is parsed to the same."""
    machine = Machine.parse(data.decode("utf-8", "surrogateescape"))
    assert Machine.parse(str(machine)) == machine


def seeds() -> Iterator[bytes]:
    for text in (
        "x86_64",
        "x86_64,znver5,-avx512bf16,cores=8",
        "aarch64,cortex-a72",
        "x86_64,+avx2,l1=32KiB",
        "riscv64",
    ):
        yield text.encode()


FACTS = ("vector_bits=", "vector_registers=", "fma_per_cycle=", "loads_per_cycle=", "l1=", "l2=", "l3=", "cores=")
NAMES = tuple(sorted(name for processors in PROCESSORS.values() for name in processors))
TARGET = Target("target", check, seeds, words=("host", "+", "-", *FACTS, *NAMES), max_bytes=512, runs=400_000)
