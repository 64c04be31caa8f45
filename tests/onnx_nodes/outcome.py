"""What Tilewright makes of one node test."""

import re

import onnx
from onnx.backend.test.runner import Runner

import tilewright
from tests.onnx_nodes.cases import Case, array_of
from tests.onnx_nodes.ledger import Outcome, Status
from tilewright.api import CompiledModel
from tilewright.base.errors import MOST_CHARACTERS, TilewrightError, Unsupported
from tilewright.base.settings import Settings
from tilewright.graph import Graph
from tilewright.graph.ir import walk_back
from tilewright.staged import StagedModel


def outcome(case: Case, bounds_check: bool = False) -> Outcome:
    """Compile the case's model, run it, and compare. Parameters become constants only if that is needed."""
    settings = Settings(bounds_check=bounds_check)
    bound = ["length"] if case.shapes else []
    try:
        found = _run(case, case.model, settings)
        if found.status is Status.XFAIL and case.parameters:
            found = _run(case, case.with_constants(), settings)
            bound += case.parameters.values()
        native = found == Outcome(Status.PASS)
        return Outcome(Status.PASS, f"constant: {', '.join(dict.fromkeys(bound))}") if native and bound else found
    except Exception as error:  # noqa: BLE001  whatever it is, it is a fault of this case, not of the harness
        return Outcome(Status.FAULT, f"{type(error).__name__}: {error}")


def _run(case: Case, proto: onnx.ModelProto, settings: Settings) -> Outcome:
    try:
        model = tilewright.compile(proto, threads=1, settings=settings, shapes=case.shapes)
    except Unsupported as error:
        text = str(error)
        if not _names_a_place(text) or len(text) > MOST_CHARACTERS:
            return Outcome(Status.FAULT, f"no place, or {len(text)} characters: {text}")
        return Outcome(Status.XFAIL, reason(text))
    except TilewrightError as error:
        return Outcome(Status.FAULT, f"{type(error).__name__}: {error}")
    results = model.run(None, {spec.name: array_of(case.inputs[spec.name]) for spec in model.inputs})
    try:
        assert len(results) == len(case.outputs)
        for item, result in zip(case.outputs, results, strict=True):
            Runner.assert_similar_outputs([array_of(item)], [result], *case.tolerance)
    except AssertionError as error:
        return Outcome(Status.FAULT, f"wrong numbers: {error}")
    return Outcome(Status.PASS, "" if _is_native(model) else "known from shapes")


def _is_native(model: CompiledModel) -> bool:
    """Whether native code computes an output from an input: nothing was decided by the values that a test feeds."""
    if isinstance(model, StagedModel):
        return True  # native code computes values that decide shapes, or what runs, or copies bytes that are read anew
    graph: Graph = model.compiled.graph
    needed = {value for node in walk_back(graph) for value in node.inputs}
    return not needed.isdisjoint(graph.inputs)


_PLACE = re.compile(r"\b(node|input|output|constant) ")
_REASONS = (
    (re.compile(r"operator (\w+) is not supported"), "operator {}"),
    (re.compile(r"no definition of the operator ([\w.]+)::"), "domain {}"),
    (re.compile(r"has element type (\w+)"), "dtype {}"),
    (re.compile(r"attribute (\w+) is not supported"), "attribute {}"),
    (re.compile(r"(?:input|output) \S+ is no tensor but (?:a|an) (\w+)"), "{} type"),
    (re.compile(r"input `\S+` must be a constant"), "parameter known at run time only"),
)
_LONGEST = 90


def _names_a_place(text: str) -> bool:
    return _PLACE.search(text) is not None


def reason(text: str) -> str:
    """An error's text as a few words, without the place and the remedy."""
    for pattern, words in _REASONS:
        match = pattern.search(text)
        if match:
            return words.format(*match.groups())
    short = re.split(r"[;\n]", re.sub(r"^node .*? \(\w+\):? ", "", text))[0]
    return " ".join(short.split())[:_LONGEST].rstrip()
