"""``torch.compile(backend="tilewright")`` computes what PyTorch computes, or refuses in words."""

import logging
import tomllib
from collections.abc import Callable, Generator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from tilewright.base.errors import BadInput, UnsupportedModel
from tilewright.base.settings import Settings

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")
networks = pytest.importorskip("tests.frontend.pytorch.networks")
backend = pytest.importorskip("tilewright.dynamo.backend").backend
nn = torch.nn

X = networks.random(3, 16)
OPTIONS = {"threads": 1, "settings": Settings(cache_dir=None, repro_dir=None)}


@pytest.fixture(autouse=True)
def fresh() -> Generator[None]:
    """Graphs of other tests are forgotten, and gradients are not followed."""
    torch.compiler.reset()
    with torch.no_grad():
        yield


def compiled(program: Callable[..., object], **options: object) -> Callable[..., object]:
    return torch.compile(program, backend=backend, options=OPTIONS, **options)


def agrees(found: torch.Tensor, expected: torch.Tensor) -> bool:
    return found.shape == expected.shape and torch.allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_pytorch_finds_it_by_its_name() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    ((name, value),) = project["entry-points"]["torch_dynamo_backends"].items()
    assert name == "tilewright"
    assert EntryPoint(name, value, "torch_dynamo_backends").load() is backend


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"options": {"thread": 1}}, "has no 'thread'; there is threads"),
        ({"options": {"threads": 0}}, "threads=0"),
        ({"mode": "max-autotune"}, "has no modes"),
    ],
)
def test_wrong_options(options: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        backend(torch.fx.symbolic_trace(networks.Perceptron()), [X], **options)


class Dictionary(nn.Module):
    """Returns a result, a view of its input, and a size."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(16, 16), nn.BatchNorm1d(16)

    def forward(self, x: torch.Tensor, *, scale: float = 2.0) -> dict[str, object]:
        y = self.norm(self.layer(x)) * scale
        return {"y": y, "again": y, "view": x[:, :2], "size": x.shape[0], "none": None}


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [None, True])
def test_sizes_change_and_structures_are_kept(dynamic: bool | None) -> None:
    module = networks.seeded(Dictionary())
    step = compiled(module, dynamic=dynamic)
    for count in (3, 5, 7, 1):
        x = networks.random(count, 16, seed=count)
        found, expected = step(x), module(x)
        assert agrees(found["y"], expected["y"])
        assert agrees(found["again"], expected["y"])
        assert found["view"].data_ptr() == x.data_ptr()
        assert (found["size"], found["none"]) == (count, None)
    assert agrees(step(X, scale=3.0)["y"], module(X, scale=3.0)["y"])


@pytest.mark.slow
def test_weights_that_are_written_to_are_noticed(caplog: pytest.LogCaptureFixture) -> None:
    module = networks.seeded(Dictionary())
    step = compiled(module)
    step(X)
    for weight in (module.layer.weight, module.norm.running_mean):
        weight.mul_(2.0)
        with caplog.at_level(logging.WARNING, "tilewright"):
            assert agrees(step(X)["y"], module(X)["y"])
        assert "written to" in caplog.text
        caplog.clear()
    module.layer.weight.data = module.layer.weight * 2.0
    assert agrees(step(X)["y"], module(X)["y"])


@pytest.mark.slow
def test_layers_that_share_a_graph_have_their_own_weights() -> None:
    module = networks.seeded(nn.Sequential(*(nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(3))))
    expected = module(X)
    for layer in module:
        layer.compile(backend=backend, options=OPTIONS)
    for _ in range(2):
        assert agrees(module(X), expected)


@pytest.mark.slow
def test_a_graph_break_is_named_by_its_line(caplog: pytest.LogCaptureFixture) -> None:
    step = compiled(networks.Branching().eval())
    with caplog.at_level(logging.WARNING, "tilewright"):
        for x in (X.abs(), -X.abs()):
            assert agrees(step(x), x.abs())
    assert networks.line("if x.sum() > 0:") in caplog.text


@pytest.mark.slow
def test_a_backward_pass_is_refused() -> None:
    step = compiled(networks.seeded(networks.Perceptron()))
    assert not step(X).requires_grad
    with torch.enable_grad():
        found = step(X)
        assert found.requires_grad  # as the weights do
        with pytest.raises(BadInput, match="no backward pass"):
            found.sum().backward()


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


@pytest.mark.slow
def test_the_fast_path_of_encoders_is_refused_with_a_remedy() -> None:
    module, x = networks.seeded(Encoder()), networks.random(2, 5, 16)
    expected = module(x)
    with pytest.raises(UnsupportedModel, match=r"call torch\.backends\.mha\.set_fastpath_enabled\(False\)") as refused:
        compiled(module)(x)
    assert "graphs.py" not in str(refused.value)
    torch.compiler.reset()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        assert agrees(compiled(module)(x), expected)
    finally:
        torch.backends.mha.set_fastpath_enabled(True)


class InPlace(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x * 2


class IntoCache(nn.Module):
    def forward(self, x: torch.Tensor, cache: torch.Tensor) -> None:
        cache.copy_(x @ x.T)


@pytest.mark.slow
def test_writes_to_inputs_are_refused() -> None:
    for module, inputs in ((InPlace(), (X.clone(),)), (IntoCache(), (X, torch.zeros(3, 3)))):
        with pytest.raises(Exception, match="writes to") as refused:
            compiled(module.eval())(*inputs)
        assert "test_backend.py:" in str(refused.value)


@pytest.mark.slow
def test_training_mode_is_refused() -> None:
    with pytest.raises(UnsupportedModel, match=r"batch normalization is in training mode, at .*: call \.eval\(\)"):
        compiled(Dictionary().train())(X)
    with pytest.raises(UnsupportedModel, match="Dropout in training mode"):
        compiled(nn.Sequential(nn.Dropout(0.5)).train())(X)


@pytest.mark.slow
def test_what_only_makes_views_is_left_to_pytorch() -> None:
    step = compiled(lambda x: x.T[1:])
    found = step(X)
    assert found.data_ptr() == X.T[1:].data_ptr()
    assert torch.equal(found, X.T[1:])
