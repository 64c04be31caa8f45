"""The lines of a PyTorch program that nodes come from: torch's exporter notes the stack of calls in each node."""

import os
import re
from pathlib import Path

import onnx

from tilewright.base.names import readable
from tilewright.frontend.onnx.read.order import all_nodes

STACK = "pkg.torch.onnx.stack_trace"
"""The metadata of a node that has it, in the form of Python's tracebacks."""

_FRAME = re.compile(r'^ *File "([^"\n]+)", line (\d+), in (\S+)\n(?: +([^\n]*))?', re.MULTILINE)
_LIBRARIES = re.compile(r"[/\\](?:site|dist)-packages[/\\]torch[/\\]")


_TILEWRIGHT = str(Path(__file__).parents[3]) + os.sep
"""Where files are that run the programs of ``torch.compile``."""


def line_of(stack: str) -> str:
    """The innermost call of ``stack`` outside of torch: ``net.py:12, in forward: y = f(x)``. Empty if there is none."""
    frames = [frame for frame in _FRAME.findall(stack) if not frame[0].startswith(_TILEWRIGHT)]
    own = [frame for frame in frames if not _LIBRARIES.search(frame[0])]
    return shown_line(*(own or frames)[-1]) if frames else ""


def shown_line(file: str, number: str, function: str, code: str) -> str:
    """A line of a program, for messages."""
    return f"{readable(file, 200)}:{number}, in {readable(function)}" + (f": {readable(code, 120)}" if code else "")


def with_line(reason: str, node: onnx.NodeProto) -> str:
    """``reason``, and the line that ``node`` comes from, if the model says so."""
    stack = next((entry.value for entry in node.metadata_props if entry.key == STACK), "")
    line = line_of(stack)
    return f"{reason}; the node comes from {line}" if line else reason


def keep_stacks_only(model: onnx.ModelProto) -> None:
    """Remove from ``model`` what torch's exporter notes in it, except stacks of calls."""
    for node in _nodes(model):
        stacks = [entry for entry in node.metadata_props if entry.key == STACK]
        node.ClearField("metadata_props")
        node.metadata_props.extend(stacks)
    for graph in (model.graph, *model.functions):
        graph.ClearField("metadata_props")
        for info in graph.value_info:
            info.ClearField("metadata_props")
    for info in (*model.graph.input, *model.graph.output):
        info.ClearField("metadata_props")


def without_stacks(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of ``model`` that does not depend on where its program stands."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for node in _nodes(copy):
        node.ClearField("metadata_props")
    return copy


def _nodes(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    return [node for body in (model.graph, *model.functions) for node in all_nodes(body.node)]
