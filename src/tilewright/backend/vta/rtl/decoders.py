"""Decoders of instructions and micro-ops: wires, at the places that ``fields`` gives the fields of a dataclass."""

from collections.abc import Sequence
from dataclasses import fields

from amaranth.hdl import Value

from tilewright.backend.vta.config import Config
from tilewright.backend.vta.fields import Placed
from tilewright.backend.vta.instructions import FORMS, OPCODE_MASK, Finish, Opcode, Tokens, places

OPCODE = slice(0, OPCODE_MASK.bit_length())
TOKENS = tuple(field.name for field in fields(Tokens))


def decoded(word: Value, placed: Sequence[Placed]) -> dict[str, Value]:
    """The fields of a word by name."""
    return {place.field.name: _taken(word, place) for place in placed}


def _taken(word: Value, place: Placed) -> Value:
    bits = word[place.shift : place.shift + place.width]
    return bits.as_signed() if place.field.bits.signed else bits


def opcode_is(word: Value, opcode: Opcode) -> Value:
    """Whether an instruction has this opcode."""
    return word[OPCODE] == opcode.value


def tokens_of(word: Value, config: Config) -> dict[str, Value]:
    """The flags of tokens, which all instructions have in the same places."""
    where = [tuple(place for place in places(form, config) if place.field.name in TOKENS) for form in FORMS]
    assert all(item == where[0] for item in where)
    return decoded(word, [place for place in places(Finish, config) if place.field.name in TOKENS])
