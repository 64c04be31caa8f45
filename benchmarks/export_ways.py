"""The ways from a network of `architectures.py` to a compiled model, and what is compared.

Expected results are PyTorch's; where ONNX Runtime computes others from a file, the export is at fault.
"""

import logging
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path

from .agreement import Arrays, difference, matched

_NOISE = re.compile(r"\x1b\[\d+m|[^\s:]*/site-packages/")
"""Of messages."""
Run = Callable[[Arrays], Arrays]


class Way(Enum):
    """How a network gets to Tilewright."""

    DYNAMO = "dynamo"
    """A file that `torch.onnx.export(dynamo=True)` writes."""
    SCRIPT = "script"
    """A file of the older exporter."""
    MODULE = "module"
    """`tilewright.compile(module, example_inputs=...)`"""
    PROGRAM = "program"
    """`tilewright.compile(torch.export.export(module, ...))`"""
    COMPILED = "torch.compile"
    """`torch.compile(module, backend="tilewright")`"""

    @property
    def is_file(self) -> bool:
        """Whether the model is an ONNX file."""
        return self in (Way.DYNAMO, Way.SCRIPT)


class Sizes(Enum):
    FIXED = "fixed"
    OPEN = "open"


class NoModelError(Exception):
    """PyTorch can't export a network so, or the export does not compute what the network does."""


@dataclass(frozen=True, slots=True)
class Case:
    """One network, one way, with fixed or open dimensions."""

    name: str
    way: Way
    sizes: Sizes

    @property
    def file(self) -> str:
        return f"{self.name}.{self.way.value}.{self.sizes.value}.onnx"


@dataclass(frozen=True, slots=True)
class Question:
    """A network in evaluation mode, inputs for it at several sizes, and PyTorch's results."""

    network: object
    inputs: Sequence[Sequence[object]]
    """Tensors; the first are those to export with."""
    expected: Sequence[Arrays]
    """Empty if PyTorch can't run it here: torchvision's native part may be missing."""

    @property
    def feeds(self) -> list[Arrays]:
        """The inputs as arrays."""
        return [[x.numpy() for x in given] for given in self.inputs]

    def difference(self, ours: Arrays, theirs: Arrays) -> float:
        """The largest of an output; boxes that a detection network finds may come in another order."""
        from .detectors import Detector

        return difference(matched(ours, theirs) if isinstance(self.network, Detector) else ours, theirs)


def question(case: Case) -> Question:
    """The network and its inputs. Raises whatever its library raises."""
    import torch

    from .architectures import ARCHITECTURES

    chosen = ARCHITECTURES[case.name]
    torch.manual_seed(0)
    network = chosen.create().eval()
    torch.manual_seed(1)
    pairs = [(chosen.batches[0], chosen.sizes[0])]
    if case.sizes is Sizes.OPEN:
        pairs += zip(chosen.batches[1:], (*chosen.sizes[1:], *chosen.sizes), strict=False)
    inputs = [_drawn(network, partial(chosen.inputs, batch, size)) for batch, size in pairs]
    try:
        with torch.no_grad():
            expected = [arrays(network(*given)) for given in inputs]
    except RuntimeError:
        expected = []
    return Question(network, inputs, expected)


def _drawn(network: object, draw: Callable[[], Sequence[object]]) -> Sequence[object]:
    """Inputs; for a detection network a picture of which rounding does not decide what is found.

    Raises `NoModelError` if there is none.
    """
    from .detectors import Detector, steady

    if not isinstance(network, Detector):
        return draw()
    try:
        return (steady(network, lambda: draw()[0]),)
    except LookupError as error:
        raise NoModelError(str(error)) from error


def arrays(results: object) -> Arrays:
    """One tensor or several, as arrays."""
    return [x.numpy() for x in (results if isinstance(results, tuple | list) else [results])]


Compile = Callable[[], tuple[Run, object]]
"""Gives a function from inputs to outputs, and the model (None: there are several)."""


def prepared(case: Case, asked: Question, folder: Path) -> tuple[Compile, Sequence[Arrays]]:
    """What compiles the network, and what ONNX Runtime computes from a file. Raises `NoModelError`."""
    import tilewright

    logging.getLogger("tilewright").setLevel(logging.ERROR)
    axes = _open_axes(case)
    match case.way:
        case Way.DYNAMO | Way.SCRIPT:
            path, known, theirs = _by_onnxruntime(case, asked, folder)

            def from_file() -> tuple[Run, object]:
                model = tilewright.compile(path, threads=1)
                names = [spec.name for spec in model.inputs]
                return lambda xs: model.run(None, {name: xs[known[name]] for name in names}), model

            return from_file, theirs
        case Way.MODULE:
            options = {"dynamic_shapes": _nested(asked.network, axes)} if axes else {}
            examples = tuple(asked.inputs[0])
            return lambda: _by_arrays(
                tilewright.compile(asked.network, example_inputs=examples, threads=1, **options)
            ), ()
        case Way.PROGRAM:
            program = _program(asked, _nested(asked.network, _hints(axes)) if axes else None)
            return lambda: _by_arrays(tilewright.compile(program, threads=1)), ()
        case Way.COMPILED:
            return lambda: _by_torch_compile(asked.network, bool(axes)), ()


def _by_arrays(model: object) -> tuple[Run, object]:
    return lambda xs: model.run(None, dict(zip([spec.name for spec in model.inputs], xs, strict=True))), model


def _by_torch_compile(network: object, is_open: bool) -> tuple[Run, object]:
    import torch

    from tilewright.dynamo.backend import backend

    graphs: list[object] = []

    def counted(graph: object, examples: object, **options: object) -> object:
        graphs.append(graph)
        return backend(graph, examples, **options)

    compiled = torch.compile(network, backend=counted, options={"threads": 1}, dynamic=is_open or None)

    def run(xs: Arrays) -> Arrays:
        with torch.no_grad():
            found = arrays(compiled(*map(torch.from_numpy, xs)))
        if not graphs:
            raise NoModelError("torch.compile finds nothing in it to compile")
        return found

    return run, None


def _open_axes(case: Case) -> tuple[Mapping[int, str], ...]:
    from .architectures import ARCHITECTURES

    return ARCHITECTURES[case.name].open if case.sizes is Sizes.OPEN else ()


def _hints(axes: tuple[Mapping[int, str], ...]) -> tuple[Mapping[int, object], ...]:
    import torch

    return tuple(dict.fromkeys(given, torch.export.Dim.DYNAMIC) for given in axes)


def _nested(network: object, axes: tuple[Mapping[int, object], ...]) -> tuple[object, ...]:
    """As `First` takes its inputs: as one variadic argument."""
    from .architectures import First

    return (axes,) if isinstance(network, First) else axes


def _program(asked: Question, shapes: object) -> object:
    """Raises `NoModelError`."""
    import torch

    try:
        with torch.no_grad():
            return torch.export.export(asked.network, asked.inputs[0], dynamic_shapes=shapes, strict=False)
    except Exception as error:
        raise NoModelError(f"torch.export: {short(error)}") from error


def _by_onnxruntime(case: Case, asked: Question, folder: Path) -> tuple[Path, Mapping[str, int], Sequence[Arrays]]:
    """The file, the position of each input of the network that it has, and results. Raises `NoModelError`."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    try:
        path = export(case, asked, folder)
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        known = {value.name: int(value.name[1:]) for value in session.get_inputs()}
        found = [session.run(None, {name: xs[at] for name, at in known.items()}) for xs in asked.feeds]
    except Exception as error:
        raise NoModelError(short(error)) from error
    return path, known, found


def export(case: Case, asked: Question, folder: Path) -> Path:
    """Write the case's model, unless it is there. Raises whatever torch's exporters raise."""
    import torch

    path = folder / case.file
    if path.exists():
        return path
    axes, names = _open_axes(case), [f"x{position}" for position in range(len(asked.inputs[0]))]
    options: dict[str, object] = {"input_names": names}
    if case.way is Way.DYNAMO:
        shapes = _nested(asked.network, _hints(axes)) if axes else None
        options |= {"dynamo": True, "dynamic_shapes": shapes, "verbose": False}
    else:
        dynamic = {name: dict(given) for name, given in zip(names, axes, strict=True)} if axes else None
        options |= {"dynamo": False, "dynamic_axes": dynamic, "opset_version": 17}
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(asked.network, tuple(asked.inputs[0]), str(path), **options)
    return path


def short(error: Exception) -> str:
    """The kind and the beginning of the text, without colors and folders of packages; its length, if that is long."""
    text = _NOISE.sub("", " ".join(str(error).split()))
    return f"{type(error).__name__}: {text[:400]}" + (f" ... ({len(str(error))} characters)" if len(text) > 400 else "")
