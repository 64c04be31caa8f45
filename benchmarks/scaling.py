"""How compile time grows with a model: seconds of each stage for families of models, each in several sizes.

`python -m benchmarks.scaling [--sizes 1000 2000 4000] [FAMILY ...]` prints one table for each family, with the exponent
of a fit of `seconds = c * nodes ** exponent`: 1 is linear. Times are CPU seconds of one thread; nothing comes from a
cache of kernels.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tilewright.base.settings import Stage
from tilewright.compilation import Options, Services
from tilewright.driver import compile_graph
from tilewright.frontend.onnx.read import importer
from tilewright.target.target import Target

OPSET = 18
Attribute = int | Sequence[int]
SHAPE = (1, 64)
SIZES = (1000, 2000, 4000)
LEAST = 0.05
"""Seconds: the exponent of less is that of what does not depend on the model."""


@dataclass(slots=True)
class Parts:
    """What a model is put together from. All inputs and outputs are of `SHAPE`, unless another one is given."""

    inputs: dict[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    outputs: dict[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    constants: dict[str, np.ndarray] = field(default_factory=dict[str, np.ndarray])
    nodes: list[onnx.NodeProto] = field(default_factory=list[onnx.NodeProto])
    functions: list[onnx.FunctionProto] = field(default_factory=list[onnx.FunctionProto])

    def node(self, kind: str, inputs: Sequence[str], output: str, **attributes: Attribute) -> str:
        """Append a node of one output, and return its name."""
        domain = "own" if any(function.name == kind for function in self.functions) else ""
        made = helper.make_node(kind, inputs, [output], domain=domain)
        made.attribute.extend(helper.make_attribute(key, value) for key, value in attributes.items())
        self.nodes.append(made)
        return output

    def model(self) -> onnx.ModelProto:
        """All of it."""
        inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in self.inputs.items()]
        outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in self.outputs.items()]
        constants = [numpy_helper.from_array(array, name) for name, array in self.constants.items()]
        graph = helper.make_graph(self.nodes, "scaling", inputs, outputs, constants)
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("own", 1)]
        return helper.make_model(graph, opset_imports=opsets, functions=self.functions, ir_version=9)


Step = Callable[[Parts, str, int], str]
"""Appends a step of a chain to parts: from the value that it is given to the one that it returns."""


def chain(steps: int, step: Step, shape: tuple[int, ...] = SHAPE) -> onnx.ModelProto:
    """`steps` of them, each on what the one before made."""
    parts = Parts(inputs={"x": shape})
    value = "x"
    for number in range(steps):
        value = step(parts, value, number)
    parts.outputs[value] = shape
    return parts.model()


def sine(parts: Parts, value: str, number: int) -> str:
    """Nothing shared."""
    return parts.node("Sin", [value], f"y{number}")


def double(parts: Parts, value: str, number: int) -> str:
    """`y = t + t`: as a tree, twice as large with each step."""
    return parts.node("Add", [value, value], f"y{number}")


def swish(parts: Parts, value: str, number: int) -> str:
    """`y = t * sigmoid(t)`."""
    return parts.node("Mul", [value, parts.node("Sigmoid", [value], f"s{number}")], f"y{number}")


def newton(parts: Parts, value: str, number: int) -> str:
    """`y = t * (1.5 - x * t * t)`: a root, step by step."""
    parts.constants["c"] = np.array([1.5], np.float32)
    square = parts.node("Mul", [value, value], f"a{number}")
    product = parts.node("Mul", ["x", square], f"b{number}")
    return parts.node("Mul", [value, parts.node("Sub", ["c", product], f"d{number}")], f"y{number}")


def last_two(parts: Parts, value: str, number: int) -> str:
    """`y = t + (what t was made of)`: each value is read by the two that follow."""
    before = parts.nodes[-1].input[0] if parts.nodes else value
    return parts.node("Add", [value, before], f"y{number}")


def bias(parts: Parts, value: str, number: int) -> str:
    """A constant for each step, and a product in between, so that none of them can be folded into another."""
    parts.constants[f"w{number}"] = np.full(SHAPE, 1.0 + number, np.float32)
    return parts.node("Add", [parts.node("Sin", [value], f"p{number}"), f"w{number}"], f"y{number}")


def convolution(parts: Parts, value: str, number: int) -> str:
    """A small one, with weights of its own."""
    parts.constants[f"w{number}"] = np.full((4, 4, 3, 3), 0.01 * number, np.float32)
    return parts.node("Conv", [value, f"w{number}"], f"y{number}", pads=[1, 1, 1, 1])


def reshape(parts: Parts, value: str, number: int) -> str:
    """Views only."""
    parts.constants["even"], parts.constants["odd"] = np.array([8, 8]), np.array([1, 64])
    return parts.node("Reshape", [value, "odd" if number % 2 else "even"], f"y{number}")


def call(parts: Parts, value: str, number: int) -> str:
    """A function of the model's."""
    if not parts.functions:
        body = [helper.make_node("Sin", ["a"], ["c"]), helper.make_node("Relu", ["c"], ["b"])]
        parts.functions.append(helper.make_function("own", "f", ["a"], ["b"], body, [helper.make_opsetid("", OPSET)]))
    return parts.node("f", [value], f"y{number}")


def joined(count: int, kind: str, result: tuple[int, ...], **attributes: Attribute) -> onnx.ModelProto:
    """One node of `count` inputs."""
    parts = Parts(inputs={f"x{number}": SHAPE for number in range(count)})
    parts.outputs[parts.node(kind, list(parts.inputs), "y", **attributes)] = result
    return parts.model()


def split(count: int) -> onnx.ModelProto:
    """One node of `count` outputs."""
    parts = Parts(inputs={"x": (1, 4 * count)}, outputs={f"y{number}": (1, 4) for number in range(count)})
    parts.nodes.append(helper.make_node("Split", ["x"], list(parts.outputs), axis=1, num_outputs=count))
    return parts.model()


def branches(count: int) -> onnx.ModelProto:
    """Nodes side by side, each with an output of its own."""
    parts = Parts(inputs={"x": SHAPE})
    for number in range(count):
        parts.constants[f"w{number}"] = np.full(SHAPE, number, np.float32)
        parts.outputs[parts.node("Add", ["x", f"w{number}"], f"y{number}")] = SHAPE
    return parts.model()


def separate(count: int) -> onnx.ModelProto:
    """As many inputs and outputs as nodes."""
    parts = Parts()
    for number in range(count):
        parts.inputs[f"x{number}"] = SHAPE
        parts.outputs[parts.node("Relu", [f"x{number}"], f"y{number}")] = SHAPE
    return parts.model()


def skips(count: int) -> onnx.ModelProto:
    """A chain down, and one up that reads what was made on the way down, last first (a U-Net)."""
    parts = Parts(inputs={"x": SHAPE})
    down = ["x"]
    for number in range(count // 2):
        down.append(parts.node("Sin", [down[-1]], f"d{number}"))
    value = down[-1]
    for number, before in enumerate(reversed(down[:-1])):
        value = parts.node("Mul", [value, before], f"u{number}")
    parts.outputs[value] = SHAPE
    return parts.model()


FAMILIES: Mapping[str, Callable[[int], onnx.ModelProto]] = {
    "chain": lambda count: chain(count, sine),
    "double": lambda count: chain(count, double),
    "swish": lambda count: chain(count // 2, swish),
    "newton": lambda count: chain(count // 4, newton),
    "last two": lambda count: chain(count, last_two),
    "biases": lambda count: chain(count // 2, bias),
    "convolutions": lambda count: chain(count, convolution, (1, 4, 8, 8)),
    "views": lambda count: chain(count // 2 * 2, reshape),
    "calls": lambda count: chain(count // 2, call),
    "concat": lambda count: joined(count, "Concat", (1, 64 * count), axis=1),
    "sum": lambda count: joined(count, "Sum", SHAPE),
    "split": split,
    "branches": branches,
    "separate": separate,
    "skips": skips,
}
"""Models by the number of their nodes (of inputs or outputs, where there is one node)."""


@dataclass(frozen=True, slots=True)
class Row:
    """A model of `count` nodes: CPU seconds of each stage. What comes after the last stage is `code`."""

    count: int
    seconds: Mapping[str, float]

    @property
    def total(self) -> float:
        """Of all stages."""
        return sum(self.seconds.values())


def measure(model: onnx.ModelProto, count: int, target: Target) -> Row:
    """Compile `model`."""
    seconds: dict[str, float] = {}
    last = time.process_time()

    def note(stage: str) -> None:
        nonlocal last
        now = time.process_time()
        seconds[stage] = seconds.get(stage, 0.0) + now - last
        last = now

    def watch(stage: Stage, _: object) -> None:
        note("import" if stage is Stage.GRAPH else stage.value)

    compile_graph(importer.load(model), Options(target, 1), Services(watch=watch))
    note("code")
    return Row(count, seconds)


def exponent(rows: Sequence[Row], stage: str | None = None) -> float | None:
    """Of the fit, for a stage or for all together; None where it takes too little time to tell."""
    times = [row.total if stage is None else row.seconds.get(stage, 0.0) for row in rows]
    if len(rows) < 2 or min(times) <= 0.0 or max(times) < LEAST:
        return None
    slope, _ = np.polyfit(np.log([row.count for row in rows]), np.log(times), 1)
    return float(slope)


def table(name: str, rows: Sequence[Row]) -> Iterator[str]:
    """The lines of a family's table: a line for each stage that takes time."""
    yield f"| {name} | {' | '.join(str(row.count) for row in rows)} | exponent |"
    yield f"|---|{'---:|' * (len(rows) + 1)}"
    stages = [stage for stage in rows[-1].seconds if rows[-1].seconds[stage] >= LEAST]
    for stage in [*stages, None]:
        times = [row.total if stage is None else row.seconds.get(stage, 0.0) for row in rows]
        fitted = exponent(rows, stage)
        shown = "" if fitted is None else f"{fitted:.2f}"
        yield f"| {stage or '**all**'} | {' | '.join(f'{seconds:.2f}' for seconds in times)} | {shown} |"
    yield ""


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=", ".join(FAMILIES))
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    arguments = parser.parse_args()
    unknown = [name for name in arguments.families if name not in FAMILIES]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; known: {', '.join(FAMILIES)}")
    target = Target.host()
    measure(FAMILIES["chain"](10), 10, target)  # modules and rules are loaded once
    for name in arguments.families or FAMILIES:
        rows = [measure(FAMILIES[name](count), count, target) for count in arguments.sizes]
        print("\n".join(table(name, rows)))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
