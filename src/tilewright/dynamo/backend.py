"""What ``torch.compile(backend="tilewright")`` calls, and its options."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from traceback import FrameSummary
from typing import Annotated, Protocol, runtime_checkable

import torch

from tilewright.base.arguments import Within, check_fields
from tilewright.base.checks import Checks
from tilewright.base.errors import BadInput
from tilewright.base.names import bounded, nearest, shown
from tilewright.base.numerics import Math, Precision
from tilewright.base.settings import Settings
from tilewright.base.superopt import Superopt
from tilewright.dynamo.piece import Piece
from tilewright.frontend.onnx.read.user_lines import shown_line
from tilewright.runtime.abi import MAX_THREADS

_LOG = logging.getLogger("tilewright")


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """``torch.compile(options={...})``: the arguments of ``tilewright.compile`` that have a meaning here."""

    math: Math | str = Math.DEFAULT
    precision: Precision | str = Precision.FP32
    memory_limit: int | str | None = None
    superopt: Superopt | str = Superopt.OFF
    checks: Checks | str = Checks.ON
    threads: Annotated[int, Within(1, MAX_THREADS)] | None = None
    settings: Settings | None = None

    def __post_init__(self) -> None:
        check_fields(self, BadInput)


def backend(
    graph: torch.fx.GraphModule,
    example_inputs: Sequence[object],
    *,
    options: Mapping[str, object] | None = None,
    mode: str | None = None,
) -> Callable[..., tuple[object, ...]]:
    """The function that computes ``graph``, a piece of a program; PyTorch calls it with tensors and sizes.

    Raises ``BadInput`` for a ``mode`` and for unknown ``options``. The function raises what ``tilewright.compile``
    raises.
    """
    del example_inputs  # the first call has the tensors themselves
    if mode is not None:
        raise BadInput(f"torch.compile(mode={shown(mode)}): this back end has no modes; leave it out")
    _tell_break(graph)
    return Piece(graph, _checked(options or {}))


def _checked(given: Mapping[str, object]) -> Mapping[str, object]:
    """The options. Raises ``BadInput`` for unknown ones, and for values that do not fit."""
    known = [field.name for field in fields(CompileOptions)]
    for name in given:
        if name not in known:
            raise BadInput(
                f"torch.compile(options=) has no {shown(name)}; there is {', '.join(nearest(name, known) or known)}"
            )
    made = CompileOptions(**given)  # pyright: ignore[reportArgumentType] # it checks them
    return {name: getattr(made, name) for name in known}


@runtime_checkable
class _Reason(Protocol):
    """Why PyTorch ended a graph."""

    reason: str
    graph_break: bool
    user_stack: Sequence[FrameSummary]


def _tell_break(graph: torch.fx.GraphModule) -> None:
    """Log where and why ``graph`` ends before its program does."""
    why: object = getattr(graph, "compile_subgraph_reason", None)
    if isinstance(why, _Reason) and why.graph_break:
        line = "an unknown line" if not why.user_stack else _shown(why.user_stack[-1])
        text = bounded(" ".join(why.reason.split()), 400)
        _LOG.warning("the program is compiled in pieces, as PyTorch breaks its graph at %s (%s)", line, text)


def _shown(frame: FrameSummary) -> str:
    return shown_line(frame.filename, str(frame.lineno), frame.name, frame.line or "")
