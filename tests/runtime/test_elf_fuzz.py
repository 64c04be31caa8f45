"""Damaged objects raise BadArtifact, whatever is damaged; nothing is run."""

import random

import pytest

from tests.runtime.images import compile_text, support_object
from tests.runtime.test_loader import AARCH64, ONE
from tilewright.base.errors import BadArtifact
from tilewright.runtime.elf import parse_elf
from tilewright.runtime.linker import link, plan, undefined
from tilewright.runtime.objectfile import Machine

SAMPLES = ((ONE, Machine.X86_64), (AARCH64, Machine.AARCH64))


def read_all(data: bytes, machine: Machine) -> bool:
    """Parse and link; whether it went through."""
    try:
        item = parse_elf(data)
        layout = plan([item], machine, dict.fromkeys(undefined([item]), 0x7000_0000_0000))
        if layout.size < 1 << 20:
            link(layout, memoryview(bytearray(layout.size)), 0x7000_0010_0000)
    except BadArtifact as error:
        assert str(error)
        return False
    return True


@pytest.mark.parametrize(("text", "machine"), SAMPLES, ids=["x86_64", "aarch64"])
def test_truncated(text: str, machine: Machine) -> None:
    data = compile_text(text, machine)
    assert read_all(data, machine)
    for length in range(0, len(data), 3):
        assert not read_all(data[:length], machine)


def fuzz(data: bytes, machine: Machine, rounds: int, seed: int) -> int:
    """Damage ``data`` in random ways; the number of times that it still went through."""
    source = random.Random(seed)
    passed = 0
    for _ in range(rounds):
        damaged = bytearray(data)
        for _ in range(source.choice((1, 1, 2, 8))):
            at = source.randrange(len(damaged))
            match source.randrange(3):
                case 0:
                    damaged[at] ^= 1 << source.randrange(8)
                case 1:
                    damaged[at] = source.choice((0, 1, 0x7F, 0x80, 0xFF))
                case _:
                    damaged[at : at + 8] = source.randbytes(min(8, len(damaged) - at))
        passed += read_all(bytes(damaged), machine)
    return passed


@pytest.mark.parametrize(("text", "machine"), SAMPLES, ids=["x86_64", "aarch64"])
def test_flipped(text: str, machine: Machine) -> None:
    assert fuzz(compile_text(text, machine), machine, 8000, seed=1) > 0


@pytest.mark.slow
def test_flipped_long() -> None:
    for seed, machine in enumerate((Machine.X86_64, Machine.AARCH64) * 4):
        fuzz(support_object(machine), machine, 100_000, seed)


def test_random_bytes() -> None:
    source = random.Random(2)
    header = support_object()[:64]
    for _ in range(500):
        assert not read_all(header + source.randbytes(source.randrange(2000)), Machine.X86_64)
