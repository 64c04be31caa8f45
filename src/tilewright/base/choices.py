"""Choices that a user makes by a word: each is a member of an ``Enum``, and its value the word."""

from enum import Enum
from typing import TypeVar

from tilewright.base.errors import BadInput
from tilewright.base.names import shown

Chosen = TypeVar("Chosen", bound=Enum)


class Choice(Enum):
    """The base of what a public function takes as a word or a member, by an argument that is called as the class."""

    @classmethod
    def named(cls: type[Chosen], name: Chosen | str) -> Chosen:
        """The member called ``name``. Raises ``BadInput`` if there is none, which says what there is."""
        known: dict[object, Chosen] = {member.value: member for member in cls}
        found = name if isinstance(name, cls) else known.get(name)
        if found is None:
            raise BadInput(f"{cls.__name__.lower()}={shown(name)}: choose one of {', '.join(map(str, known))}")
        return found
