"""The process that runs whole models on a board without Python: ``tilewright.fleet.agent_models --agent=COMMAND``.

A model becomes a program with a clock (``backend.shipping.board``), which the agent on the board is sent, once for each
request. Its times are the board's.
"""

import argparse
import math
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from tilewright.backend.shipping.board import board_program
from tilewright.base import fields
from tilewright.base.arrays import Array
from tilewright.base.errors import FleetError, MeasureError, Timeout, Unsupported
from tilewright.fleet.foreign import artifact_of, checked_feeds
from tilewright.fleet.model_child import Kind, feeds_of, keys_of, read_plan, serve_as, written
from tilewright.measure.agent import Agent, EndedError, Session
from tilewright.measure.turns import Plan
from tilewright.measure.verdicts import Phase, Verdict
from tilewright.runtime.artifact import Artifact


@dataclass(frozen=True, slots=True)
class _Model:
    """A model that runs on the board."""

    session: Session
    inputs: Sequence[Array]
    names: Sequence[str]

    def call(self, calls: int = 1) -> tuple[tuple[Array, ...], float]:
        """See ``Session``."""
        return self.session.call(self.inputs, calls)


@dataclass(frozen=True, slots=True)
class Board:
    """Does what is asked behind an agent."""

    agent: Agent

    def do(self, asked: Mapping[str, object]) -> dict[str, object]:
        """See ``Doing``. Raises what became of the program."""
        models = [artifact_of(asked, key) for key in keys_of(asked)]
        feeds, seconds = feeds_of(asked), fields.number(asked["seconds"])
        try:
            with ExitStack() as opened:
                return {**_told(asked, [self._started(m, feeds, seconds, opened) for m in models]), "machine": {}}
        except EndedError as ended:
            raise _error(ended) from ended

    def _started(self, model: Artifact, feeds: Mapping[str, Array], seconds: float, opened: ExitStack) -> _Model:
        given = checked_feeds(model, feeds)
        interface, program = board_program(model)
        session = opened.enter_context(self.agent.start(program, interface, seconds))
        names = [tensor.name for tensor in interface.outputs]
        return _Model(session, [given[tensor.name] for tensor in interface.inputs], names)


def _told(asked: Mapping[str, object], models: Sequence[_Model]) -> dict[str, object]:
    match Kind(asked["kind"]):
        case Kind.RUN:
            outputs, _ = models[0].call()
            return {"outputs": written(asked, models[0].names, outputs)}
        case Kind.TURNS:
            return {"turns": _turns(models, read_plan(asked["plan"]))}
        case Kind.SAMPLES:
            raise Unsupported("an agent tells how long a whole run takes, and not its kernels: use bench")


def _turns(models: Sequence[_Model], plan: Plan) -> list[list[list[float]]]:
    """As ``measure.turns`` has them, with one mean for each turn: of as many calls as fill its slot."""
    found: list[list[list[float]]] = [[] for _ in models]
    calls = [max(1, math.ceil(plan.slot / _warm(model))) for model in models]
    end = time.monotonic() + plan.budget
    order = list(range(len(models)))
    for number in range(plan.rounds):
        if number and time.monotonic() >= end:
            break
        for place in order:
            time.sleep(plan.rest)
            found[place].append([models[place].call(calls[place])[1]])
        order.reverse()
    return found


def _warm(model: _Model) -> float:
    """The seconds of a second call."""
    model.call()
    return model.call()[1]


def _error(ended: EndedError) -> FleetError | MeasureError | Timeout:
    outcome = ended.outcome(Phase.TIME)
    match outcome.verdict:
        case Verdict.DEVICE_LOST:
            return FleetError(f"the board is lost: {outcome.detail}")
        case Verdict.TIMEOUT:
            return Timeout(f"the model was not done within the time that it may take: {outcome.detail}")
        case _:
            return MeasureError(f"the model has ended on the board: {outcome.verdict.value}: {outcome.detail}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Answer one request."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--agent", required=True)
    own, others = parser.parse_known_args(arguments)
    return serve_as(Board(Agent.parse(own.agent)).do, others)


if __name__ == "__main__":
    raise SystemExit(main())
