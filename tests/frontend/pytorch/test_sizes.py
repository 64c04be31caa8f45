"""Open sizes of PyTorch's programs: what depends on them is computed as PyTorch does, or refused in a run."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

import tilewright
from tilewright.base.errors import BadFeed, InvalidModel
from tilewright.base.settings import Settings
from tilewright.frontend.onnx.read.noted_sizes import Form

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")
networks = pytest.importorskip("tests.frontend.pytorch.networks")
ALONE = Settings(cache_dir=None, repro_dir=None)
IMAGE = {0: "batch", 2: "height", 3: "width"}


def opened(module: object, example: object, axes: dict[int, str] | None) -> tilewright.CompiledModel:
    options = {"dynamic_shapes": (axes,)} if axes else {}
    return tilewright.compile(module.eval(), example_inputs=(example,), threads=1, settings=ALONE, **options)


@pytest.mark.slow
@pytest.mark.parametrize("after", [(6, 4), (1, 3), (7, 7), (1, 1)])
def test_adaptive_pooling_of_any_size(after: tuple[int, int]) -> None:
    """Parts that overlap, that do not, and that are larger than the whole."""
    module = torch.nn.AdaptiveAvgPool2d(after)
    model = opened(module, networks.random(2, 3, 5, 9), IMAGE)
    for size in ((5, 9), (1, 2), (12, 8), (14, 21), (3, 17)):
        x = networks.random(2, 3, *size)
        np.testing.assert_allclose(model(x).numpy(), module(x).numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_sizes_that_pytorch_can_not_solve_for() -> None:
    """As in AlexNet: SymPy has no solution for what PyTorch assumes of these quotients of quotients."""
    halved = [torch.nn.MaxPool2d(3, 2) for _ in range(3)]
    first, second = torch.nn.Conv2d(3, 4, 11, stride=4, padding=2), torch.nn.Conv2d(4, 4, 5, padding=2)
    layers = (first, halved[0], second, *halved[1:], torch.nn.AdaptiveAvgPool2d((6, 6)))
    module = networks.seeded(torch.nn.Sequential(*layers))
    model = opened(module, networks.random(2, 3, 64, 96), IMAGE)
    for size in ((64, 96), (96, 128), (224, 63)):
        x = networks.random(1, 3, *size)
        np.testing.assert_allclose(model(x).numpy(), module(x).detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_windows_of_windows_are_traced_without_simplifying_quotients(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a view PyTorch may ask SymPy to simplify quotients of quotients, which for Swin took it minutes."""
    simplified: list[object] = []
    monkeypatch.setattr("sympy.simplify", lambda expression, **_: simplified.append(expression) or expression)
    module = networks.seeded(networks.WindowsOfWindows())
    model = opened(module, networks.random(2, 3, 10, 14), IMAGE)
    assert simplified == []
    for size in ((10, 14), (7, 20), (15, 9)):
        x = networks.random(3, 3, *size)
        np.testing.assert_allclose(model(x).numpy(), module(x).detach().numpy(), rtol=1e-5, atol=1e-5)
    with pytest.raises(BadFeed):
        model(networks.random(1, 3, 3, 14))


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of PyTorch, about itself
@pytest.mark.parametrize(("after", "is_traced_anew"), [(1, False), ((1, 1), False), ((1, 3), True), (2, True)])
def test_a_program_is_traced_anew_only_if_it_has_operators_that_matter(after: object, *, is_traced_anew: bool) -> None:
    """Means, which most networks of images end with, the exporter writes for all sizes."""
    decompositions = pytest.importorskip("tilewright.frontend.pytorch.decompositions")
    module, axes = torch.nn.AdaptiveAvgPool2d(after), dict.fromkeys(IMAGE, torch.export.Dim.DYNAMIC)
    program = torch.export.export(module, (networks.random(2, 3, 5, 9),), dynamic_shapes=(axes,))
    assert (decompositions.decomposed(program) is not program) == is_traced_anew


class Nearest(torch.nn.Module):
    def __init__(self, size: tuple[int, int] | None, scale: float | None = None) -> None:
        super().__init__()
        self.size, self.scale = size, scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.interpolate(x, size=self.size, scale_factor=self.scale, mode="nearest")


@pytest.mark.slow
@pytest.mark.parametrize(("size", "scale"), [((64, 96), None), ((41, 83), None), (None, 2.0), (None, 1.3)])
@pytest.mark.parametrize("is_open", [False, True])
def test_nearest_elements_are_those_of_pytorch(
    size: tuple[int, int] | None, scale: float | None, *, is_open: bool
) -> None:
    """Where the place is a whole number, float32 decides: of 24 rows that become 64, and of 40 columns, 96."""
    module = Nearest(size, scale)
    model = opened(module, networks.random(2, 3, 24, 40), IMAGE if is_open else None)
    for before in ((24, 40), (64, 17), (7, 82)) if is_open else ((24, 40),):
        x = networks.random(2, 3, *before)
        np.testing.assert_array_equal(model(x).numpy(), module(x).numpy())


class Windowed(torch.nn.Module):
    """As window attention: smaller images are computed otherwise."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[2] + x.shape[3] <= 16:
            return x + 1
        return x * 2


@pytest.mark.slow
def test_sizes_for_which_the_program_does_otherwise_are_refused(tmp_path: Path) -> None:
    module, settings = Windowed(), Settings(key_dir=tmp_path / "keys")
    small, large = networks.random(2, 3, 5, 9), networks.random(2, 3, 9, 12)
    model = opened(module, small, IMAGE)
    model.save(tmp_path / "m.tw", settings=settings)
    for each in (model, tilewright.load(tmp_path / "m.tw", settings=settings)):
        np.testing.assert_array_equal(each(small).numpy(), module(small).numpy())
        with pytest.raises(BadFeed, match="but the model was compiled for 0 or more"):
            each(large)
    of_large = opened(module, large, IMAGE)
    np.testing.assert_array_equal(of_large(large).numpy(), module(large).numpy())
    program = torch.export.export(module, (small,), dynamic_shapes=(dict.fromkeys(IMAGE, torch.export.Dim.DYNAMIC),))
    with pytest.raises(InvalidModel, match="not for these sizes"):
        tilewright.compile(program, shapes={"x": (2, 3, 9, 12)}, settings=ALONE)


@pytest.mark.slow
def test_torch_compile_makes_a_model_for_sizes_that_another_is_not_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Here every trace is for up to 7 rows."""

    def few_rows(_: object, dimensions: Mapping[str, Sequence[str]]) -> list[Form]:
        ((rows, _),) = dimensions.values()
        return [("-", 7, rows)] if rows else []

    monkeypatch.setattr("tilewright.frontend.pytorch.exporting.conditions", few_rows)
    torch.compiler.reset()
    module = networks.seeded(networks.Perceptron())
    compiled = torch.compile(module, backend="tilewright", dynamic=True, options={"threads": 1, "settings": ALONE})
    with torch.no_grad():
        for rows in (5, 9, 3, 9):
            x = networks.random(rows, 16, seed=rows)
            assert torch.allclose(compiled(x), module(x), atol=1e-6)
            assert (rows == 5) != ("compiled for each size" in caplog.text)
