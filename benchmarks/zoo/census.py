"""Which operators ONNX files hold: `python -m benchmarks.zoo.census FILE ...` prints a line per file."""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import onnx


def operators(model: onnx.ModelProto) -> Counter[str]:
    """How many nodes of each operator a model has, those in bodies of loops and branches included."""
    return Counter(node.op_type for node in _nodes(model.graph))


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _nodes(attribute.g)


def census(paths: Iterable[Path]) -> str:
    """A line per file, and one for all of them: nodes, opset, and each operator with its number."""
    lines: list[str] = []
    total: Counter[str] = Counter()
    for path in paths:
        model = onnx.load(path, load_external_data=False)
        counts = operators(model)
        total += counts
        opsets = ", ".join(f"{opset.domain or 'ai.onnx'} {opset.version}" for opset in model.opset_import)
        lines.append(f"{path.stem}: {counts.total()} nodes, opset {opsets}: {_listed(counts)}")
    return "\n".join([*lines, f"all: {total.total()} nodes, {len(total)} operators: {_listed(total)}"])


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{operator} {count}" for operator, count in counts.most_common())


if __name__ == "__main__":
    print(census(map(Path, sys.argv[1:])))
