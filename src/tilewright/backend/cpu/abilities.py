"""What a processor does by one instruction, where others need several."""

from dataclasses import dataclass

from tilewright.backend.cpu.halves import Halves, halves_of
from tilewright.backend.cpu.packs import FEATURE as PACKING
from tilewright.target.target import Architecture, Target


@dataclass(frozen=True, slots=True)
class Abilities:
    """The abilities of one processor; by default, few."""

    rounds_to_bfloat: bool = False
    """Whether it flushes and rounds f32 to bfloat16."""
    halves: Halves = Halves.CONVERTED
    """What it does with f16."""
    fuses: bool = False
    """Whether it rounds a product and a sum once."""
    packs: bool = False
    """Whether it puts vectors of 512 bits in one, of narrower numbers."""
    has_masks: bool = False
    """Whether it loads and stores some lanes of a vector as fast as all: with AVX-512. Of AVX's own instructions, the
    one that stores is microcode on Zen 1 to 3 (LLVM, issue 213195), and the one that loads is slow among stores."""

    @staticmethod
    def of(target: Target) -> "Abilities":
        """The abilities of ``target``."""
        return Abilities(
            rounds_to_bfloat=target.has("avx512bf16"),
            halves=halves_of(target),
            fuses=target.has("fma") or target.arch is Architecture.AARCH64,
            packs=target.has(PACKING),
            has_masks=target.has("avx512vl"),
        )


ANY = Abilities()
"""Those of an unknown processor."""
