"""How loops are tiled on a kind of target: data that the rules read (Zheng et al., OSDI 2020, section 4.1)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Structure:
    """Levels of tiles, and what they are bound to. Without ``bound``, a target has cores and lanes."""

    levels: str
    """``S``: a level of loops over the output, ``R``: one over a reduction; outermost first."""
    fused: tuple[int, ...]
    """Levels, all outside of reductions, in whose loops a consumer may be computed."""
    bound: tuple[str, ...] = ()
    """The axes of a launch that the first levels are bound to."""
    threads: int = 1
    """Most threads of a block."""
    warp: int = 1
    """Threads that run in step: blocks have a multiple of it, where they can."""
    virtual_threads: int = 1
    """Most virtual threads."""

    @property
    def has_threads(self) -> bool:
        """Whether there are blocks and threads."""
        return bool(self.bound)


CORES = Structure("SSRSRS", (0, 1))
"""CPUs."""
BLOCKS_AND_THREADS = Structure(
    "SSSRRSRS", (0,), ("blockIdx", "vthread", "threadIdx"), threads=1024, warp=32, virtual_threads=8
)
"""Back ends with grids of blocks of threads, such as the reference back end."""
