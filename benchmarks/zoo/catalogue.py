"""The table of networks: `build(name)` gives one with scaled weights, `NETWORKS[name].inputs` makes inputs for it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Generator, Tensor, nn

from . import models
from .libraries import vision
from .scaling import calibrate

Inputs = tuple[Tensor, ...]

SEED = 0
CALIBRATION_BATCH = 4  # more than one: a batch norm over one pixel has no variance to measure
TOKENS = 128
WORDS = 30522
LAYER_SCALE = 0.5  # training begins with 1e-6, in which all layers but one vanish


@dataclass(frozen=True, slots=True)
class Network:
    """How to make a network (weights as the library initializes them) and inputs for it, at a given batch."""

    create: Callable[[], nn.Module]
    inputs: Callable[[Generator, int], Inputs]
    names: tuple[str, ...] = ("input",)
    """Of the inputs, in the order of the network's arguments."""
    opset: int = 17


def build(name: str) -> nn.Module:
    """The network with seeded random weights, scaled, in evaluation mode. Raises KeyError for an unknown name."""
    network = NETWORKS[name]
    torch.manual_seed(SEED)
    module = network.create().eval()
    calibrate(module, network.inputs(generator(1000), CALIBRATION_BATCH))
    return module


def generator(index: int) -> Generator:
    """Random numbers for the inputs of sample `index`."""
    return Generator().manual_seed(index)


def _vision(name: str, **options: float) -> Callable[[], nn.Module]:
    return lambda: getattr(vision, name)(weights=None, **options)


def _video_resnet() -> nn.Module:
    return vision.video.r3d_18(weights=None)


def _vision_transformer() -> nn.Module:
    """With a last layer that isn't zero, as the library initializes it."""
    module = vision.vit_b_16(weights=None)
    nn.init.normal_(module.heads.head.weight)
    return module


def _normal(*shape: int, batch_axis: int = 0) -> Callable[[Generator, int], Inputs]:
    """One input of normal numbers; `shape` without the batch."""

    def make(random: Generator, batch: int) -> Inputs:
        return (torch.randn(*shape[:batch_axis], batch, *shape[batch_axis:], generator=random),)

    return make


def _frames(random: Generator, batch: int) -> Inputs:
    return (torch.rand(batch, 4, 84, 84, generator=random),)


def _steps_and_state(random: Generator, batch: int) -> Inputs:
    return torch.randn(5, batch, 512, generator=random), torch.randn(batch, 512, generator=random)


def _tokens(random: Generator, batch: int) -> Inputs:
    """Random words, the last of them masked out (which saves no work, as shapes are static)."""
    words = torch.randint(0, WORDS, (batch, TOKENS), generator=random)
    lengths = torch.randint(TOKENS // 2, TOKENS + 1, (batch, 1), generator=random)
    return words, (torch.arange(TOKENS) < lengths).to(torch.int64)


_IMAGE = _normal(3, 224, 224)
_TEXT = ("input_ids", "attention_mask")

NETWORKS: dict[str, Network] = {
    "mlp": Network(models.mlp, _normal(784)),
    "dqn": Network(models.dqn, _frames),
    "lstm": Network(models.LanguageModel, _normal(32, 650, batch_axis=1)),
    "nasrnn": Network(models.NasRnn, _steps_and_state, ("input", "state")),
    "dcgan": Network(models.dcgan, _normal(100, 1, 1)),
    "squeezenet": Network(_vision("squeezenet1_1"), _IMAGE),
    "mobilenet_v2": Network(_vision("mobilenet_v2"), _IMAGE),
    "resnet18": Network(_vision("resnet18"), _IMAGE),
    "resnet50": Network(_vision("resnet50"), _IMAGE),
    "resnext50": Network(_vision("resnext50_32x4d"), _IMAGE),
    "densenet121": Network(_vision("densenet121"), _IMAGE),
    "inception_v3": Network(_vision("inception_v3", aux_logits=False, init_weights=False), _normal(3, 299, 299)),
    "vgg16": Network(_vision("vgg16"), _IMAGE),
    "nasnet_mobile": Network(models.NasNetMobile, _IMAGE),
    "resnet18_3d": Network(_video_resnet, _normal(3, 16, 112, 112)),
    "bert_base": Network(lambda: models.Encoder(layers=12, hidden=768), _tokens, _TEXT),
    "minilm": Network(lambda: models.Encoder(layers=6, hidden=384), _tokens, _TEXT, opset=13),  # spelt-out layer norms
    # Of other kinds, which were chosen before they were measured.
    "efficientnet_b0": Network(_vision("efficientnet_b0"), _IMAGE),
    "convnext_tiny": Network(_vision("convnext_tiny", layer_scale=LAYER_SCALE), _IMAGE),
    "vit_b_16": Network(_vision_transformer, _IMAGE),
}


def module_of(model: Path) -> nn.Module:
    """The network that a file of the zoo was written from, with the same weights."""
    return build(model.stem)
