"""Configurations as files: blocks, sizes and widths, and the words of device memory in a cycle.

    write_config(path, Design(config, bus_bytes=8))
    design = read_config(path)

A file is a JSON object of the fields of ``Config`` and of ``bus_bytes``; those that are left out have their defaults.
"""

import json
from dataclasses import asdict, dataclass
from dataclasses import fields as fields_of
from pathlib import Path

from tilewright.backend.vta.config import Config
from tilewright.backend.vta.cycles import Timing
from tilewright.base import fields
from tilewright.base.errors import BadInput
from tilewright.base.files import reason
from tilewright.base.input_files import read_regular
from tilewright.base.outputs import output

MOST_BYTES = 1 << 16
"""A file that is larger is no configuration."""
SUFFIX = ".json"
"""Of the name of a file of a configuration, where a word may be a preset's name, too."""
_BUS = "bus_bytes"


@dataclass(frozen=True, slots=True)
class Design:
    """A configuration, and the bytes of device memory that it moves in a cycle. Raises ``BadInput`` for none."""

    config: Config
    bus_bytes: int = Timing().bus_bytes

    def __post_init__(self) -> None:
        Timing(bus_bytes=self.bus_bytes)

    @property
    def timing(self) -> Timing:
        """Times of the cycle simulator: fetching an instruction takes as many cycles as it has words."""
        words = -(-self.config.instruction_bits // (8 * self.bus_bytes))
        return Timing(bus_bytes=self.bus_bytes, fetch_interval=max(1, words))


def write_config(path: Path, design: Design) -> None:
    """Write a file. Raises ``BadInput`` as ``output`` does."""
    text = json.dumps({**asdict(design.config), _BUS: design.bus_bytes}, indent=1)
    with output(path) as file:
        file.write(f"{text}\n".encode())


def read_config(path: Path) -> Design:
    """Read a file. Raises ``BadInput`` for what is no configuration, with the field."""
    try:
        given = fields.mapping(json.loads(read_regular(path, MOST_BYTES)))
    except OSError as error:
        raise BadInput(f"{path} can't be read: {reason(error)}") from error
    except (ValueError, TypeError) as error:
        raise BadInput(f"{path} is no configuration of an accelerator: it is no JSON object ({error})") from error
    known = {field.name for field in fields_of(Config)} | {_BUS}
    if unknown := sorted(given.keys() - known):
        raise BadInput(f"{path}: {unknown[0]} is no field of a configuration; known are {', '.join(sorted(known))}")
    try:
        name = fields.text(given.pop("name", path.stem))
        sizes = {field: fields.whole(value) for field, value in given.items()}
    except TypeError as error:
        raise BadInput(f"{path}: {error}") from error
    bus_bytes = sizes.pop(_BUS, Timing().bus_bytes)
    try:
        return Design(Config(name, **sizes), bus_bytes)
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from error
