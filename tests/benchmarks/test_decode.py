"""The model of the benchmark of decoding, in every form, against ONNX Runtime; and the command from end to end."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.decode import __main__ as command
from benchmarks.decode.decoders import OnnxRuntime, Ours, Rooms
from benchmarks.decode.model import Config, Weights, write

CONFIG = Config(width=256, layers=1, kv_heads=2, words=96, accuracy=0)
SMALL = ["--width", "128", "--layers", "1", "--kv-heads", "1", "--words", "64", "--past", "4", "--prefill", "3"]


def compared(weights: Weights, folder: Path, precision: str = "fp32", batch: int = 1) -> tuple[Ours, float]:
    """Tilewright's model, and how far its tokens are from ONNX Runtime's."""
    config = replace(CONFIG, weights=weights)
    write(config, path := folder / "decoder.onnx")
    ours = Ours(path, Rooms(config, batch, 16), 1, precision)
    both = ours, OnnxRuntime(path, Rooms(config, batch, 16), 1)
    results = (command.decoded(each, config, batch) for each in both)
    return ours, command.difference(*results)


def test_tokens_of_a_batch_are_those_of_onnx_runtime(tmp_path: Path) -> None:
    """Keys are neither repeated for several heads of queries nor stored a second time."""
    ours, difference = compared(Weights.INT4, tmp_path, batch=2)
    assert difference < 1e-5
    attentions = [node for node in ours.model.compiled.graph.nodes if node.op.name == "BlockAttention"]
    assert [dict(node.attributes)["group"] for node in attentions] == [2]
    assert all(node.inputs[1] in ours.model.compiled.graph.outputs for node in attentions)


@pytest.mark.slow
@pytest.mark.parametrize("weights", [Weights.F32, Weights.INT8])
def test_other_weights(weights: Weights, tmp_path: Path) -> None:
    assert compared(weights, tmp_path)[1] < 1e-5


@pytest.mark.slow
def test_bfloat16(tmp_path: Path) -> None:
    assert compared(Weights.F32, tmp_path, "bf16")[1] < 3e-2


@pytest.mark.slow
def test_the_command_prints_a_row_for_each_decoder(capsys: pytest.CaptureFixture[str]) -> None:
    command.main([*SMALL, "--tokens", "2", "--rounds", "1", "--modes", "f32,int4", "--peers", "onnxruntime"])
    rows = [line.split(" | ")[:2] for line in capsys.readouterr().out.splitlines()[2:]]
    assert rows == [[f"| {mode}", by] for mode in ("f32", "int4") for by in ("onnxruntime", "tilewright")]
