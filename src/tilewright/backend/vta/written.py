"""Programs as text, for artifacts: JSON of the configuration, operands, sequences of micro-ops, and steps.

steps        [bits, number]: LOAD and STORE with the number of their operand, GEMM and ALU with that of their
             micro-ops; [bits] of what has neither. Bits are those of ``instructions.encode``, in hexadecimal digits
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Final

from tilewright.backend.vta.config import Config, Scratchpad
from tilewright.backend.vta.instructions import Alu, Finish, Gemm, Load, Store, Uop, decode, encode
from tilewright.backend.vta.kernels import AluKernel, GemmKernel, Kernel, Loop
from tilewright.backend.vta.program import Call, Operand, Pass, Program, Step, Transfer, with_tokens
from tilewright.base import fields
from tilewright.base.errors import BadInput, CorruptArtifact

_FORMAT: Final = 1


def written(program: Program) -> bytes:
    """The text of a program."""
    sequences = list(dict.fromkeys(step.kernel.uops for step in program.steps if isinstance(step, Call)))
    uops = {sequence: number for number, sequence in enumerate(sequences)}
    operands = {operand: number for number, operand in enumerate(program.operands)}
    content = {
        "format": _FORMAT,
        "config": asdict(program.config),
        "operands": [[operand.name, operand.pad.name, operand.shape] for operand in program.operands],
        "uops": [[[uop.dst, uop.src, uop.wgt] for uop in sequence] for sequence in sequences],
        "steps": [_listed(step, operands, uops, program.config) for step in program.steps],
    }
    return json.dumps(content, separators=(",", ":")).encode("ascii")


def _listed(
    step: Step, operands: Mapping[Operand, int], uops: Mapping[tuple[Uop, ...], int], config: Config
) -> list[object]:
    match step:
        case Transfer():
            return [encode(step.instruction, config).hex(), operands[step.operand]]
        case Pass():
            return [encode(step.instruction, config).hex()]
        case Call():
            return [encode(step.kernel.instruction(0, step.tokens), config).hex(), uops[step.kernel.uops]]


def program_of(text: bytes) -> Program:
    """The program of a text. Raises ``CorruptArtifact`` if it is none."""
    try:
        content = fields.mapping(json.loads(text.decode("ascii")))
        if content["format"] != _FORMAT:
            raise CorruptArtifact(f"its program has format {content['format']!r}, and this Tilewright runs {_FORMAT}")
        config = _config(fields.mapping(content["config"]))
        operands = tuple(map(_operand, fields.items(content["operands"])))
        uops = [tuple(map(_uop, fields.items(sequence))) for sequence in fields.items(content["uops"])]
        steps = tuple(_step(step, operands, uops, config) for step in fields.items(content["steps"]))
        return Program(config, operands, steps)
    except (KeyError, TypeError, ValueError, IndexError, RecursionError, BadInput) as error:
        raise CorruptArtifact(f"its program of the accelerator can't be read: {error}") from error


def _config(given: dict[str, object]) -> Config:
    return Config(
        fields.text(given["name"]), **{name: fields.whole(value) for name, value in given.items() if name != "name"}
    )


def _operand(value: object) -> Operand:
    name, pad, shape = fields.items(value)
    extents = tuple(map(fields.whole, fields.items(shape)))
    if min(extents, default=1) < 1:
        raise ValueError(f"an operand of {extents} tiles")
    return Operand(fields.text(name), Scratchpad[fields.text(pad)], extents)


def _uop(value: object) -> Uop:
    dst, src, wgt = map(fields.whole, fields.items(value))
    return Uop(dst, src, wgt)


def _step(value: object, operands: Sequence[Operand], uops: Sequence[tuple[Uop, ...]], config: Config) -> Step:
    bits, *number = fields.items(value)
    instruction = decode(bytes.fromhex(fields.text(bits)), config)
    if not number:
        if isinstance(instruction, Gemm | Alu):
            raise ValueError("a kernel without micro-ops")
        return Pass(instruction)
    at = fields.whole(number[0])
    if at < 0:
        raise IndexError(at)
    match instruction:
        case Load() | Store():
            return Transfer(operands[at], instruction)
        case Gemm() | Alu():
            return with_tokens(Call(_kernel(instruction, uops[at])), instruction.tokens)
        case Finish():
            raise ValueError("FINISH has no operand")


def _kernel(instruction: Gemm | Alu, uops: tuple[Uop, ...]) -> Kernel:
    wgt = (instruction.wgt_outer, instruction.wgt_inner) if isinstance(instruction, Gemm) else (0, 0)
    outer = Loop(instruction.outer, instruction.dst_outer, instruction.src_outer, wgt[0])
    inner = Loop(instruction.inner, instruction.dst_inner, instruction.src_inner, wgt[1])
    if isinstance(instruction, Gemm):
        return GemmKernel(uops, outer, inner, instruction.reset)
    immediate = instruction.immediate if instruction.use_immediate else None
    return AluKernel(uops, instruction.operation, outer, inner, immediate)
