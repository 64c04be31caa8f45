"""Detection networks of torchvision run whole: they find what PyTorch finds, and what ONNX Runtime finds."""

import warnings
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import onnxruntime
import pytest

import tilewright
from benchmarks.agreement import TOLERANCE, difference, matched
from tilewright.api import CompiledModel
from tilewright.staged import StagedModel

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")
NAMES = (
    "ssdlite320_mobilenet_v3_large",
    "ssd300_vgg16",
    "retinanet_resnet50_fpn",
    "fcos_resnet50_fpn",
    "fasterrcnn_mobilenet_v3_large_320_fpn",
    "fasterrcnn_resnet50_fpn",
    "maskrcnn_resnet50_fpn",
)
HEIGHT_AND_WIDTH: Mapping[str, Mapping[int, str]] = {"image": {1: "height", 2: "width"}}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Threads of PyTorch wait for each other, long where others compute beside them."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def exported(network: object, image: object, path: Path, axes: Mapping[str, Mapping[int, str]] | None = None) -> Path:
    """The model of the older exporter; the newer one refuses how these networks choose boxes."""
    options = {"dynamo": False, "opset_version": 17, "input_names": ["image"], "dynamic_axes": axes}
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            torch.onnx.export(network, (image,), str(path), **options)
        except Exception as error:  # noqa: BLE001  whatever torch raises, there is no model to be tested
            pytest.skip(f"torch can't export it: {type(error).__name__}")
    return path


def check(network: object, path: Path, model: CompiledModel, images: list[object]) -> None:
    onnxruntime.set_default_logger_severity(4)
    theirs = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for image in images:
        feeds = {"image": image.numpy()}
        with torch.no_grad():
            expected = [result.numpy() for result in network(image)]
        found = model.run(None, feeds)
        assert len(expected[0]) >= 5
        assert difference(matched(found, expected), expected) < TOLERANCE
        by_onnxruntime = theirs.run(None, feeds)
        assert difference(matched(found, by_onnxruntime), by_onnxruntime) < TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_it_finds_what_pytorch_and_onnxruntime_find(name: str, tmp_path: Path) -> None:
    detectors = pytest.importorskip("benchmarks.detectors", exc_type=ImportError)
    torch.manual_seed(0)
    network = detectors.detector(name)
    torch.manual_seed(1)
    images = [detectors.steady(network, detectors.picture) for _ in range(2)]
    path = exported(network, images[0], tmp_path / "model.onnx")
    check(network, path, tilewright.compile(path, threads=1), images)  # kernels of the same backbone are cached


@pytest.mark.slow
def test_one_model_is_for_images_of_all_sizes(tmp_path: Path) -> None:
    detectors = pytest.importorskip("benchmarks.detectors", exc_type=ImportError)
    torch.manual_seed(0)
    network = detectors.detector("ssdlite320_mobilenet_v3_large")
    torch.manual_seed(1)
    sizes = ((128, 160), (160, 128), (97, 200))
    images = [detectors.steady(network, partial(detectors.picture, *size)) for size in sizes]
    path = exported(network, images[0], tmp_path / "model.onnx", HEIGHT_AND_WIDTH)
    model = tilewright.compile(path, threads=1)
    assert isinstance(model, StagedModel)
    assert [spec.shape for spec in model.inputs] == [(3, "height", "width")]
    check(network, path, model, images)
