"""Whether a board without Python does what its agent's command and its target promise: a small kernel runs there."""

import numpy as np

from tilewright.backend.shipping.board import board_program
from tilewright.base.errors import MeasureError
from tilewright.loops.lower import lower
from tilewright.measure.agent import Agent, EndedError
from tilewright.measure.build import as_artifact, image_of
from tilewright.measure.verdicts import Phase
from tilewright.symbolic.expr import Expr, Var
from tilewright.target.target import Target
from tilewright.tensor import build as te

_SECONDS = 60.0
_ELEMENTS = 64


def check(agent: Agent, target: Target) -> None:
    """Let the board run a kernel for ``target``. Raises ``MeasureError`` unless it is right."""
    a = te.placeholder((_ELEMENTS,), name="A")

    def element(i: Var) -> Expr:
        return a[i] * 2.0 + 1.0

    made = te.compute((_ELEMENTS,), element, name="B")
    interface, program = board_program(as_artifact(image_of(lower(made, "trial"), target)))
    given = np.arange(_ELEMENTS, dtype=np.float32)
    try:
        with agent.start(program, interface, _SECONDS) as session:
            (found,), _ = session.call([given])
    except EndedError as ended:
        outcome = ended.outcome(Phase.CHECK)
        wanted = f"{target.arch.value},{target.cpu}"
        said = f"no program for {wanted} runs behind '{agent}': {outcome.verdict.value}: {outcome.detail}"
        raise MeasureError(said) from ended
    if not np.array_equal(found, given * 2.0 + 1.0):
        raise MeasureError(f"the board behind '{agent}' computes what is wrong: {found}")
