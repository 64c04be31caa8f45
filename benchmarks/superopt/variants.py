"""The graphs that are searched, and whose costs are compared with times."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType

from benchmarks.networks import NETWORKS
from benchmarks.planted.__main__ import MAKERS
from benchmarks.planted.writer import Maker, Planted
from tilewright.frontend.onnx.read import importer
from tilewright.graph import Graph

from .builders import BUILT

REDUNDANT = (
    "nasrnn",
    "densenet121",
    "inception_v3",
    "nasnet_mobile",
    "repvgg",
    "linear_attention_encoder",
    "lstm_tagger",
    "squeezenet",
    "resnext50",
    "detection_neck",
)
"""Networks in which published systems find something, or that are exported with work that need not be done."""
KNOWN = tuple(dict.fromkeys((*NETWORKS, *BUILT)))
_PLANTED: Mapping[str, Maker] = MappingProxyType({maker.__name__.replace("_", "-"): maker for maker in MAKERS})


def load(name: str, zoo: Path) -> Graph:
    """The graph of a network, or a planted one. Raises FileNotFoundError if the zoo has no such file."""
    if name in BUILT:
        return importer.load(BUILT[name]())
    if name in _PLANTED:
        return importer.load(_PLANTED[name]().given)
    path = zoo / f"{name}.onnx"
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing: run `python -m benchmarks.zoo --folder {zoo} {name}`")
    return importer.load(path)


def variants(names: Sequence[str], zoo: Path) -> Iterator[tuple[str, Callable[[], Graph]]]:
    """What makes each of the graphs: networks by name; planted ones before and after, of which `planted` is all."""
    for name in names:
        if name in _PLANTED or name == "planted":
            for maker in _PLANTED.values() if name == "planted" else (_PLANTED[name],):
                yield from _planted(maker())
        else:
            yield name, partial(load, name, zoo)


def _planted(one: Planted) -> Iterator[tuple[str, Callable[[], Graph]]]:
    yield f"{one.name}, given", partial(importer.load, one.given)
    yield f"{one.name}, rewritten", partial(importer.load, one.rewritten)
