"""Modules of PyTorch and exported programs compile, and compute what PyTorch computes."""

import sys
from pathlib import Path

import numpy as np
import pytest

import tilewright
from tilewright.base.errors import BadInput, UnsupportedModel
from tilewright.base.settings import Settings
from tilewright.cli import main
from tilewright.frontend.api import Examples
from tilewright.frontend.opening import opened

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")
networks = pytest.importorskip("tests.frontend.pytorch.networks")
X = networks.random(3, 16)
ALONE = Settings(cache_dir=None, repro_dir=None)


def difference(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Relative to the expected values."""
    return float((found - expected).norm() / expected.norm())


def test_a_module_with_an_open_dimension() -> None:
    module = networks.seeded(networks.Perceptron())
    model = tilewright.compile(module, example_inputs=X, dynamic_shapes={"x": {0: "batch"}}, threads=1, settings=ALONE)
    (given,) = model.inputs
    assert (given.name, given.shape) == ("x", ("batch", 16))
    for batch in (1, 3, 10):
        x = networks.random(batch, 16, seed=batch)
        found, expected = model(x), module(x).detach()
        assert isinstance(found, torch.Tensor)
        assert difference(found, expected) < 1e-6
        np.testing.assert_array_equal(model(x.numpy()), found.numpy())
    wanted = X.clone().requires_grad_()
    assert isinstance(model.run(None, {"x": wanted})[0], np.ndarray)
    found = model(wanted)
    assert found.requires_grad
    with pytest.raises(BadInput, match="no backward pass"):
        found.sum().backward()
    with torch.no_grad():
        assert not model(wanted).requires_grad


@pytest.mark.slow
def test_convolutions_and_an_exported_program() -> None:
    module, image = networks.seeded(networks.Convolutions()), networks.random(2, 3, 12, 12)
    model = tilewright.compile(module, example_inputs=(image,), threads=1, settings=ALONE)
    again = tilewright.compile(torch.export.export(module, (image,)), threads=1, settings=ALONE)
    expected = module(image).detach()
    assert difference(model(image), expected) < 1e-5
    assert difference(again(image), expected) < 1e-5
    strided = image.to(memory_format=torch.channels_last)
    assert difference(model(strided), expected) < 1e-5


@pytest.mark.slow
def test_several_inputs_by_name_and_outputs() -> None:
    module = networks.seeded(networks.Attention())
    ids = torch.randint(50, (2, 9), generator=torch.Generator().manual_seed(0))
    mask = torch.ones(2, 9)
    mask[0, 5:] = 0
    shapes = {name: {0: "batch", 1: "length"} for name in ("ids", "mask")}
    model = tilewright.compile(
        module, example_inputs={"ids": ids, "mask": mask}, dynamic_shapes=shapes, threads=1, settings=ALONE
    )
    assert [(one.name, one.shape) for one in model.inputs] == [
        ("ids", ("batch", "length")),
        ("mask", ("batch", "length")),
    ]
    for length in (9, 4):
        found = model(ids[:, :length], mask[:, :length])
        expected = module(ids[:, :length].clone(), mask[:, :length].clone())
        assert len(found) == 2
        assert all(difference(one, wanted.detach()) < 1e-5 for one, wanted in zip(found, expected, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU])
def test_a_recurrence_over_an_open_dimension(kind: type[torch.nn.RNNBase]) -> None:
    module = networks.seeded(networks.Recurrence(kind))
    shapes = {"x": {0: "batch", 1: "length"}}
    x = networks.random(2, 5, 16)
    model = tilewright.compile(module, example_inputs=x, dynamic_shapes=shapes, threads=1, settings=ALONE)
    for length in (5, 1, 9):
        x = networks.random(3, length, 16, seed=length)
        assert difference(model(x), module(x).detach()) < 1e-5


@pytest.mark.slow
def test_results_in_16_bits_are_tensors_of_these() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(16, 4)).eval().to(torch.bfloat16)
    x = X.to(torch.bfloat16)
    model = tilewright.compile(module, example_inputs=x, threads=1, settings=ALONE)
    found = model(x)
    assert found.dtype is torch.bfloat16
    assert difference(found.float(), module(x).detach().float()) < 1e-2


@pytest.mark.slow
def test_weights_are_not_copied_and_not_shared() -> None:
    """The graph reads the module's tensors; the compiled model has memory of its own."""
    module = networks.seeded(networks.Attention())
    ids, mask = torch.ones(2, 9, dtype=torch.int64), torch.ones(2, 9)
    source = opened(module, examples=Examples((ids, mask)))
    table = module.embed.weight.detach().numpy()
    assert any(np.shares_memory(array, table) for array in source.load({}, {}).constants.values())
    model = tilewright.compile(module, example_inputs=(ids, mask), threads=1, settings=ALONE)
    before = model(ids, mask)[0].clone()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(7.0)
    assert torch.equal(model(ids, mask)[0], before)


@pytest.mark.slow
def test_a_model_is_cached_by_its_weights_and_not_by_its_place(tmp_path: Path) -> None:
    settings = Settings(cache_dir=tmp_path / "kernels", key_dir=tmp_path / "keys", repro_dir=None)
    module = networks.seeded(networks.Perceptron())

    def is_cached() -> bool:
        return tilewright.compile(module, example_inputs=X, threads=1, settings=settings).is_cached

    assert [is_cached(), is_cached()] == [False, True]
    with torch.no_grad():
        module.first.bias.add_(1.0)
    assert [is_cached(), is_cached()] == [False, True]


@pytest.mark.slow
def test_it_can_be_compared_explained_isolated_and_saved(tmp_path: Path) -> None:
    module = networks.seeded(networks.Perceptron())
    model = tilewright.compile(module, example_inputs=X, threads=1, settings=ALONE)
    assert model.compare(X.numpy(), against="reference").agrees
    assert model.compare(X.numpy()).agrees
    assert model.explain().kernels
    isolated = tilewright.compile(module, example_inputs=X, threads=1, isolate=True, settings=ALONE)
    settings = Settings(key_dir=tmp_path / "keys")
    isolated.save(tmp_path / "m.tw", settings=settings)
    loaded = tilewright.load(tmp_path / "m.tw", settings=settings)
    assert difference(loaded(X), module(X).detach()) < 1e-6


@pytest.mark.slow
def test_the_command_line_takes_exported_programs_that_are_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    module = networks.seeded(networks.Perceptron())
    torch.export.save(torch.export.export(module, (X,)), tmp_path / "m.pt2")
    assert main(["compile", "m.pt2"]) != 0
    assert "--trust" in capsys.readouterr().err
    assert main(["compile", "m.pt2", "--trust", "--quiet"]) == 0
    assert difference(tilewright.load("m.tw")(X), module(X).detach()) < 1e-6
    Path("bad.pt2").write_bytes(b"PK\x03\x04")
    assert main(["compile", "bad.pt2", "--trust", "--quiet"]) != 0
    assert "torch.export.load" in capsys.readouterr().err


def refusal(module: object, **options: object) -> str:
    with pytest.raises((BadInput, UnsupportedModel)) as refused:
        tilewright.compile(module, settings=ALONE, **options)  # pyright: ignore[reportArgumentType]
    return str(refused.value)


def test_what_is_not_for_inference_on_the_cpu() -> None:
    module = networks.Perceptron()
    assert "needs example_inputs=" in refusal(module.eval())
    assert "training mode: call .eval()" in refusal(module.train(), example_inputs=X)
    module.eval().second.train()
    assert "the part second of this Perceptron is in training mode" in refusal(module, example_inputs=X)
    assert "first.weight is on the device meta" in refusal(networks.Perceptron().eval().to("meta"), example_inputs=X)
    assert "example input 0 is on the device meta" in refusal(module.eval(), example_inputs=X.to("meta"))
    assert "are for modules of PyTorch" in refusal("m.onnx", example_inputs=X)


def test_a_branch_on_values_is_named_by_its_line() -> None:
    text = refusal(networks.Branching().eval(), example_inputs=X)
    assert networks.line("if x.sum() > 0:") in text
    assert "data-dependent" in text
    assert len(text) < 2000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "code", "reason"),
    [
        ("Counting", "self.count.add_(x[0])", "writes to count"),
        (
            "Updating",
            "return nn.functional.batch_norm(x, mean, variance, training=True)",
            "batch normalization is in training mode",
        ),
        ("Random", "noise = torch.randn_like(x)", "gives random numbers"),
        ("Foreign", "return torch.ops.tilewright_tests.twice(y)", "operator tilewright_tests.twice.default"),
    ],
)
def test_what_is_not_supported_is_named_by_its_line(name: str, code: str, reason: str) -> None:
    text = refusal(getattr(networks, name)().eval(), example_inputs=X)
    assert reason in text
    assert networks.line(code) in text


@pytest.mark.slow
def test_outputs_are_tensors() -> None:
    class WithNumber(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, int]:
            return x + 1, 3

    assert "output 1 of the program is 3, not a tensor" in refusal(WithNumber().eval(), example_inputs=X)


def test_a_missing_exporter_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    text = refusal(networks.Perceptron().eval(), example_inputs=X)
    assert "onnxscript is not installed: pip install 'tilewright[torch]'" in text
