"""``LibraryChoice``: which library computes parts of a model, and what is given to it.

tilewright.compile(model, library="onednn")
tilewright.compile(model, library="onednn,always")
"""

from dataclasses import dataclass

from tilewright.base.choices import Choice
from tilewright.base.errors import BadInput
from tilewright.base.names import shown
from tilewright.runtime.library.onednn import NAME


class Given(Choice):
    """What is given to the library, of what it can compute."""

    MEASURED = "measured"
    """What it computes faster, by measured times, if the model is faster as a whole."""
    ALWAYS = "always"
    """All."""


@dataclass(frozen=True, slots=True)
class LibraryChoice:
    """oneDNN, and what it gets."""

    given: Given = Given.MEASURED

    def __str__(self) -> str:
        return f"{NAME},{self.given.value}"

    @staticmethod
    def named(given: "LibraryChoice | str") -> "LibraryChoice":
        """Of words: ``onednn``, and perhaps what it gets. Raises ``BadInput``."""
        if isinstance(given, LibraryChoice):
            return given
        name, *words = given.split(",")
        known = {each.value: each for each in Given}
        if name != NAME or len(words) > 1 or not set(words) <= known.keys():
            raise BadInput(f"library={shown(given)}: give {NAME}, and after it one of {', '.join(known)}, or nothing")
        return LibraryChoice(*(known[word] for word in words))
