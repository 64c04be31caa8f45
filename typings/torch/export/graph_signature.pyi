from collections.abc import Sequence
from enum import Enum

class OutputKind(Enum):
    USER_OUTPUT = ...
    TOKEN = ...

class Argument:
    name: str

class ConstantArgument(Argument):
    value: int | float | bool | str | None

class OutputSpec:
    kind: OutputKind
    arg: Argument
    target: str | None

class ExportGraphSignature:
    output_specs: Sequence[OutputSpec]
