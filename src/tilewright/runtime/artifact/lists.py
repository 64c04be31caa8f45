"""First members that list other files of this kind: JSON in one form only, as ``description`` has it for manifests."""

import json
from collections.abc import Callable, Mapping
from typing import TypeVar

from tilewright.base import fields
from tilewright.base.errors import CorruptArtifact, UnsupportedDType
from tilewright.runtime.artifact.description import FORMAT

T = TypeVar("T")


def list_text(content: Mapping[str, object]) -> bytes:
    """The member, with the format's number first."""
    return (json.dumps({"format": FORMAT, **content}, indent=1) + "\n").encode("ascii")


def read_list(
    name: str, text: bytes, make: Callable[[Mapping[str, object]], T], content: Callable[[T], Mapping[str, object]]
) -> T:
    """What ``make`` reads of the member ``name``. ``content``: the fields of it, as they are written.

    Raises ``CorruptArtifact`` if the text is of another version, or is not as it would be written.
    """
    try:
        given = fields.mapping(json.loads(text.decode("ascii")))
        if given.get("format") != FORMAT:
            raise CorruptArtifact(
                f"it has format {given.get('format')!r}, and this Tilewright runs format {FORMAT}; "
                "compile the model again, or use the Tilewright that made it"
            )
        made = make(given)
    except KeyError as error:
        raise CorruptArtifact(f"{name} has no {error}") from error
    except (TypeError, ValueError, RecursionError, UnsupportedDType) as error:
        raise CorruptArtifact(f"{name} can't be read: {error}") from error
    if list_text(content(made)) != text:
        raise CorruptArtifact(f"{name} is not as Tilewright writes it")
    return made
