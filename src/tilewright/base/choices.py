"""The base class of options that users set by a word or by an ``Enum`` member."""

from enum import Enum
from typing import TypeVar

from tilewright.base.errors import BadInput
from tilewright.base.names import shown

Chosen = TypeVar("Chosen", bound=Enum)


class Choice(Enum):
    """An enum whose members a public function takes as words or members, by an argument named as the class."""

    @classmethod
    def named(cls: type[Chosen], name: Chosen | str) -> Chosen:
        """The member with the value ``name``. Raises ``BadInput``, which lists the members, if there is none."""
        known: dict[object, Chosen] = {member.value: member for member in cls}
        found = name if isinstance(name, cls) else known.get(name)
        if found is None:
            raise BadInput(f"{cls.__name__.lower()}={shown(name)}: choose one of {', '.join(map(str, known))}")
        return found
