"""Tests an intrinsic's implementation in a separate process: it compiles, and computes what its description does.

LLVM aborts on an instruction that the processor lacks, and code on memory may write anywhere; hence the process:
``main`` reads the test as JSON and answers with the error.
"""

import json
import subprocess
import sys
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import cast

import numpy as np

from tilewright.backend.cpu.image import build_one
from tilewright.base import fields
from tilewright.base.arrays import Array
from tilewright.base.dtypes import DType, Kind
from tilewright.base.errors import BadProgram
from tilewright.base.processors import FEATURES
from tilewright.loops.interpreter import interpret
from tilewright.loops.ir import Block, Buffer, Call, Callee, Region
from tilewright.loops.parser import parse_program
from tilewright.loops.program import Intrinsic, Program
from tilewright.runtime.manifest import Manifest, TensorSpec
from tilewright.symbolic.expr import ONE, ZERO, Const
from tilewright.target.target import Architecture, Target

_SECONDS = 120
_BESIDE = 3
"""Guard elements after each row of an operand, which must stay unchanged."""


@lru_cache(256)
def check_by_trial(form: Intrinsic) -> None:
    """Raises ``BadProgram`` if LLVM can't compile ``form``, or if it computes other values than its description."""
    asked = {
        "name": form.name,
        "description": str(form.description),
        "implementation": form.implementation,
        "features": form.features,
    }
    command = [sys.executable, "-P", "-c", _COMMAND, str(Path(__file__).resolve().parents[3])]
    try:
        done = subprocess.run(
            command, input=json.dumps(asked), capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise BadProgram(f"{form.name}: its implementation does not end within {_SECONDS} seconds") from error
    except OSError as error:
        raise BadProgram(f"{form.name}: there is no process to try its implementation: {error}") from error
    fault = done.stdout.strip() if done.returncode == 0 else _last_words(done)
    if fault:
        raise BadProgram(f"{form.name}: {fault}")


_COMMAND = "import sys; sys.path.insert(0, sys.argv[1]); from tilewright.backend.cpu.trial import main; main()"


def _last_words(done: "subprocess.CompletedProcess[str]") -> str:
    told = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), f"exit status {done.returncode}")
    if "LLVM ERROR" in done.stderr:
        return f"LLVM has no code for its implementation; list in features= what it needs ({told.strip()[:200]})"
    return f"its implementation ended the process that tried it ({told.strip()[:200]})"


def main() -> None:
    """Answer on standard output; nothing on success."""
    asked = fields.mapping(cast(object, json.load(sys.stdin)))
    features = tuple(map(fields.text, fields.items(asked["features"])))
    description = parse_program(fields.text(asked["description"]))
    form = Intrinsic(fields.text(asked["name"]), description, fields.text(asked["implementation"]), features)
    sys.stdout.write(_fault(form))


def _fault(form: Intrinsic) -> str:
    program = _calling(form)
    target = _target_of(form.features)
    made = build_one(program, target)
    here = Target.host()
    if target.arch is not here.arch or not set(form.features) <= set(here.features):
        return ""
    arrays = _arrays(program)
    expected = interpret(program, arrays)
    specs = [TensorSpec(p.name, p.dtype, arrays[p.name].shape) for p in program.params]
    count = len(program.inputs)
    needs = made.needs
    manifest = Manifest(
        tuple(specs[:count]), tuple(specs[count:]), workspace=needs.workspace_bytes, scratch=needs.scratch_bytes
    )
    executable = build_one(program, here).launch(manifest, threads=1)
    out = {p.name: arrays[p.name].copy() for p in program.results}
    executable.run({p.name: arrays[p.name] for p in program.inputs}, out)
    return "".join(_difference(p, out[p.name], expected[p.name]) for p in program.results)


def _target_of(features: tuple[str, ...]) -> Target:
    """A processor that has only ``features`` and those they imply."""
    host = Target.host().arch
    arch = next((a for a in (host, *Architecture) if set(features) <= FEATURES[a].keys()), host)
    baseline = Target.of(arch)
    return Target.of(arch, features=(*baseline.features, *features))


def _calling(form: Intrinsic) -> Program:
    """A program that calls ``form`` once, on parts of its parameters."""
    inside = form.description
    params = {buffer: _wider(buffer) for buffer in inside.params}
    parts = {b: Region(params[b], tuple((ZERO, extent) for extent in b.shape)) for b in inside.params}
    inputs, outputs = [parts[b] for b in inside.inputs], [parts[b] for b in inside.results]
    call = Call(Callee.INTRINSIC, form.name, (*inputs, *outputs), len(outputs))
    body = Block("tried", (), (), tuple(parts.values()), tuple(outputs), call)
    return Program("trial", tuple(params.values()), body, outputs=inside.outputs, intrinsics=(form,))


def _wider(buffer: Buffer) -> Buffer:
    if not buffer.shape:
        return buffer
    return replace(buffer, shape=(*buffer.shape[:-1], buffer.shape[-1] + _BESIDE * ONE))


def _arrays(program: Program) -> dict[str, Array]:
    generator = np.random.default_rng(0)
    shapes = {p: tuple(int(e.value) for e in p.shape if isinstance(e, Const)) for p in program.params}
    return {p.name: _drawn(p.dtype, shape, generator) for p, shape in shapes.items()}


def _drawn(dtype: DType, shape: tuple[int, ...], generator: np.random.Generator) -> Array:
    """All numbers of narrow types, small ones of wide types: these reveal wrong conversions."""
    if dtype.is_float:
        return np.asarray(generator.standard_normal(shape), dtype.numpy)
    least, most = max(dtype.min, -(1 << 15)), min(dtype.max, 1 << 15)
    return np.asarray(generator.integers(int(least), int(most), shape, endpoint=True), dtype.numpy)


def _difference(buffer: Buffer, found: Array, expected: Array) -> str:
    exact, ours = expected.astype(np.float64), found.astype(np.float64)
    narrow = buffer.dtype.bits <= 16 or buffer.dtype.kind is Kind.BFLOAT
    most = (0.1 if narrow else 0.01) * max(1.0, float(np.abs(exact).max(initial=0))) if buffer.dtype.is_float else 0.0
    wrong = np.argwhere(~(np.abs(ours - exact) <= most) & ~(np.isnan(ours) & np.isnan(exact)))
    if not len(wrong):
        return ""
    at = tuple(int(i) for i in wrong[0])
    if at and at[-1] >= found.shape[-1] - _BESIDE:
        return f"its implementation writes beside {buffer.name}, in row [{', '.join(map(str, at[:-1]))}]"
    return (
        f"its implementation does not do what its description says: {buffer.name}[{', '.join(map(str, at))}] is "
        f"{found[at]}, not {expected[at]}, for random operands"
    )
