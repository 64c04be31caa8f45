"""Areas: how much of a chip something takes."""

from dataclasses import astuple, dataclass, fields

from tilewright.base.errors import BadInput


@dataclass(frozen=True, slots=True)
class Area:
    """Numbers of the cells of a chip."""

    luts: int = 0
    """Look-up tables of 4 inputs, also those that adders and small memories are made of."""
    flip_flops: int = 0
    dsps: int = 0
    """Blocks that multiply."""
    rams: int = 0
    """Blocks of memory."""

    def __add__(self, other: "Area") -> "Area":
        return Area(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def times(self, count: int) -> "Area":
        """Of as many."""
        return Area(*(count * part for part in astuple(self)))

    def share(self, bound: "Area") -> float:
        """The largest part of a cell's number in ``bound``; above 1, it does not fit. Infinite where there is none."""
        pairs = zip(astuple(self), astuple(bound), strict=True)
        return max(mine / most if most else float("inf") for mine, most in pairs if mine)

    def fits(self, bound: "Area") -> bool:
        """Whether ``bound`` has room for it."""
        return all(mine <= most for mine, most in zip(astuple(self), astuple(bound), strict=True))

    def require_fit(self, bound: "Area", what: str) -> None:
        """Raises ``BadInput``, with what there is too little of."""
        for part in fields(self):
            mine, most = getattr(self, part.name), getattr(bound, part.name)
            if mine > most:
                raise BadInput(f"{what}: it takes {mine:,} {part.name}, and there are {most:,}")

    def __str__(self) -> str:
        return f"{self.luts:,} LUTs, {self.flip_flops:,} flip-flops, {self.dsps} DSPs, {self.rams} RAMs"
