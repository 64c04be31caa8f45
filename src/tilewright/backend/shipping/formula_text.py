"""LLVM IR of the formulas of a manifest: sizes that are known at run time, in straight-line code that never traps.

Numbers have 128 bits, so that sums of 64-bit numbers are exact. Factors and dividends are held to 64 bits: wider
products are functions of a library on some processors. What goes wrong (a division by zero, a number that is too large)
makes ``failed`` true, and any number takes the place of the result.
"""

from collections.abc import Mapping

from tilewright.base.errors import InternalError
from tilewright.runtime.manifest import MAX_INTERMEDIATE, Formula

_MOST = (1 << 63) - 1


class Arithmetic:
    """Writes the lines of one function. Values are texts: registers or literals of the type ``i128``."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.failed = "false"
        """Whether anything so far went wrong: an ``i1``."""

    def emit(self, text: str) -> str:
        """The register of an instruction's result."""
        name = f"%number.{len(self.lines)}"
        self.lines.append(f"  {name} = {text}")
        return name

    def loaded(self, array: str, place: int) -> str:
        """The number at a place of an array of ``i64``."""
        at = self.emit(f"getelementptr i64, ptr {array}, i64 {place}")
        return self.wide(self.emit(f"load i64, ptr {at}"))

    def store(self, value: str, array: str, place: int) -> None:
        """Stores a number at a place of an array of ``i64``."""
        low = self._narrow(value)
        at = self.emit(f"getelementptr i64, ptr {array}, i64 {place}")
        self.lines.append(f"  store i64 {low}, ptr {at}")

    def wide(self, value: str) -> str:
        """An ``i64`` as a value."""
        return self.emit(f"sext i64 {value} to i128")

    def check(self, value: str, least: int, most: int) -> None:
        """Fails unless ``value`` is in ``least..most``."""
        self._fail(self.emit(f"icmp slt i128 {value}, {least}"))
        self._fail(self.emit(f"icmp sgt i128 {value}, {most}"))

    def value(self, formula: Formula, known: Mapping[str, str]) -> str:
        """The value of a formula; ``known``: those of symbols."""
        match formula:
            case int():
                return str(formula)
            case str():
                return known[formula]
            case (sign, left, right):
                return self.binary(sign, self.value(left, known), self.value(right, known))

    def binary(self, sign: str, left: str, right: str) -> str:
        """The value of an operator of formulas."""
        match sign:
            case "+" | "-":
                made = self.emit(f"{'add' if sign == '+' else 'sub'} i128 {left}, {right}")
                self.check(made, -MAX_INTERMEDIATE, MAX_INTERMEDIATE)
                return made
            case "min" | "max":
                less = self.emit(f"icmp {'slt' if sign == 'min' else 'sgt'} i128 {left}, {right}")
                return self.emit(f"select i1 {less}, i128 {left}, i128 {right}")
            case "*":
                return self.wide(self._product(self._narrow(left), self._narrow(right)))
            case "//" | "%":
                return self.wide(self._division(sign, self._narrow(left), self._narrow(right)))
            case _:
                raise InternalError(f"{sign!r} is no operator of a formula")

    def _fail(self, condition: str) -> None:
        self.failed = self.emit(f"or i1 {self.failed}, {condition}")

    def _narrow(self, value: str) -> str:
        """The value as an ``i64``."""
        low = self.emit(f"trunc i128 {value} to i64")
        self._fail(self.emit(f"icmp ne i128 {self.wide(low)}, {value}"))
        return low

    def _product(self, left: str, right: str) -> str:
        """Fails if it takes more than 64 bits, which the quotient of the largest number tells."""
        magnitudes = [self._magnitude(left), self._magnitude(right)]
        none = self.emit(f"icmp eq i64 {magnitudes[1]}, 0")
        divisor = self.emit(f"select i1 {none}, i64 1, i64 {magnitudes[1]}")
        most = self.emit(f"udiv i64 {_MOST}, {divisor}")
        over = self.emit(f"icmp ugt i64 {magnitudes[0]}, {most}")
        some = self.emit(f"xor i1 {none}, true")
        self._fail(self.emit(f"and i1 {over}, {some}"))
        return self.emit(f"mul i64 {left}, {right}")

    def _magnitude(self, value: str) -> str:
        negated = self.emit(f"sub i64 0, {value}")
        negative = self.emit(f"icmp slt i64 {value}, 0")
        return self.emit(f"select i1 {negative}, i64 {negated}, i64 {value}")

    def _division(self, sign: str, left: str, right: str) -> str:
        """Rounded down, as in Python; the remainder has the divisor's sign."""
        zero = self.emit(f"icmp eq i64 {right}, 0")
        lowest = self.emit(f"icmp eq i64 {left}, {-_MOST - 1}")
        self._fail(zero)
        self._fail(lowest)
        divisor = self.emit(f"select i1 {zero}, i64 1, i64 {right}")
        dividend = self.emit(f"select i1 {lowest}, i64 0, i64 {left}")
        quotient = self.emit(f"sdiv i64 {dividend}, {divisor}")
        rest = self.emit(f"srem i64 {dividend}, {divisor}")
        some = self.emit(f"icmp ne i64 {rest}, 0")
        signs = self.emit(f"xor i64 {rest}, {divisor}")
        opposite = self.emit(f"icmp slt i64 {signs}, 0")
        adjusted = self.emit(f"and i1 {some}, {opposite}")
        rounded, plain = (
            (self.emit(f"sub i64 {quotient}, 1"), quotient)
            if sign == "//"
            else (self.emit(f"add i64 {rest}, {divisor}"), rest)
        )
        return self.emit(f"select i1 {adjusted}, i64 {rounded}, i64 {plain}")
