"""Instructions as text: one line for each, with its module, its fields that are not the default, and its tokens. ::

3  compute  GEMM  uop_end=4 outer=16 dst_outer=1 src_outer=1  pop(load) push(store)
"""

from collections.abc import Iterable
from dataclasses import MISSING, fields
from enum import IntEnum
from typing import cast

from tilewright.backend.vta.config import Module
from tilewright.backend.vta.fields import fields_of, value_of
from tilewright.backend.vta.instructions import Instruction, Tokens

_NEIGHBOURS = {
    Module.LOAD: (None, Module.COMPUTE),
    Module.COMPUTE: (Module.LOAD, Module.STORE),
    Module.STORE: (Module.COMPUTE, None),
}


def neighbours(module: Module) -> tuple[Module | None, Module | None]:
    """The previous and the next module."""
    return _NEIGHBOURS[module]


def text_of(instruction: Instruction) -> str:
    """One instruction as text."""
    parts = [instruction.opcode.name, *_values(instruction)]
    tokens = tokens_text(instruction.module, instruction.tokens)
    return " ".join(parts) + ("  " + tokens if tokens else "")


def _values(instruction: Instruction) -> Iterable[str]:
    defaults = {field.name: cast(object, field.default) for field in fields(instruction)}
    own = [field for field in fields_of(type(instruction)) if len(field.path) == 1]
    for field in sorted(own, key=lambda field: not issubclass(field.kind, IntEnum)):
        value, default = value_of(instruction, field), defaults[field.name]
        if issubclass(field.kind, IntEnum):
            yield field.kind(value).name.lower()
        elif default is MISSING or value != default:
            yield field.name if field.kind is bool else f"{field.name}={value}"


def tokens_text(module: Module, tokens: Tokens) -> str:
    """The tokens that an instruction of ``module`` waits for and gives."""
    previous, following = neighbours(module)
    flags = [
        ("pop", previous, tokens.pop_previous),
        ("pop", following, tokens.pop_next),
        ("push", previous, tokens.push_previous),
        ("push", following, tokens.push_next),
    ]
    return " ".join(f"{verb}({other.value})" for verb, other, is_set in flags if is_set and other is not None)


def listing(instructions: Iterable[Instruction]) -> str:
    """A program as text: number, module, instruction."""
    return "\n".join(
        f"{number:>4}  {instruction.module.value:<7}  {text_of(instruction)}"
        for number, instruction in enumerate(instructions)
    )
