"""Detection networks of torchvision with random weights, and pictures for which it is clear what they find.

With fresh weights all boxes have nearly the same score, and which are kept is chance. Here normalizations have the
statistics of some pictures, and the last layers are scaled so that scores and boxes differ, as after training. Pictures
count where PyTorch finds the same if their pixels are a little different: where a score or an overlap is so near to
a limit that rounding decides, there is nothing to be compared.
"""

import re
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import torch
from torch import Tensor, nn

from .agreement import Arrays, matched
from .zoo.libraries import vision

Outputs = tuple[Tensor, ...]

_SPREADS: Mapping[str, float] = {
    r".*classification_head\.(module_list\.\d+(\.1)?|cls_logits)": 1.5,
    r".*regression_head\.(module_list\.\d+(\.1)?|bbox_reg|bbox_ctrness)": 0.7,
    r".*rpn\.head\.(cls_logits|bbox_pred)": 0.7,
    r".*box_predictor\.(cls_score|bbox_pred)": 1.5,
    r".*mask_predictor\.mask_fcn_logits": 2.0,
}
"""The standard deviation of what layers make, by their names."""
_ONE_STAGE: Mapping[str, object] = {"score_thresh": 0.5, "topk_candidates": 50, "detections_per_img": 30}
_TWO_STAGES: Mapping[str, object] = {
    "rpn_pre_nms_top_n_test": 200,
    "rpn_post_nms_top_n_test": 60,
    "box_score_thresh": 0.3,
    "box_detections_per_img": 30,
}
_FEWER: Mapping[str, object] = {
    **_TWO_STAGES,
    "rpn_pre_nms_top_n_test": 20,
    "rpn_post_nms_top_n_test": 15,
    "box_detections_per_img": 10,
}
"""Of a deep network, in which rounding decides more often."""
_SMALL: Mapping[str, object] = {"min_size": 128, "max_size": 192}
_OPTIONS: Mapping[str, Mapping[str, object]] = {
    "ssdlite320_mobilenet_v3_large": _ONE_STAGE,
    "ssd300_vgg16": _ONE_STAGE,
    "retinanet_resnet50_fpn": {**_ONE_STAGE, **_SMALL},
    "fcos_resnet50_fpn": {**_ONE_STAGE, **_SMALL},
    "fasterrcnn_mobilenet_v3_large_320_fpn": {**_TWO_STAGES, **_SMALL},
    "fasterrcnn_resnet50_fpn": {**_FEWER, **_SMALL},
    "maskrcnn_resnet50_fpn": {**_FEWER, **_SMALL},
}
"""By torchvision's name."""
NAMES = tuple(_OPTIONS)

_SIZE = (128, 160)
_CHANGE = 1e-5
"""Of pixels, whose range is 1: some ten times what rounding amounts to."""
_SHARE = 0.25
"""Of the branch of a residual block in its sum."""
_NEAR = 1e-2
"""How far changed pixels may move results, relative to the largest number; another box is much farther away."""


class Detector(nn.Module):
    """A detection network: boxes, labels and scores of one image, and masks, if it has them."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, image: Tensor) -> Outputs:
        found = self.network([image])[0]
        return tuple(found[name] for name in ("boxes", "labels", "scores", "masks") if name in found)


def detector(name: str) -> Detector:
    """The network of this name, for inference, with weights that depend on torch's seed."""
    create = getattr(vision.detection, name)
    network = create(weights=None, weights_backbone=None, num_classes=5, **_OPTIONS[name]).eval()
    with torch.no_grad():
        _calm(network)
        _normalize(network)
        _spread(network)
    return Detector(network).eval()


def picture(height: int = _SIZE[0], width: int = _SIZE[1]) -> Tensor:
    """Spots of random colors, each some 16 pixels wide."""
    spots = torch.rand(1, 3, height // 16, width // 16)
    return nn.functional.interpolate(spots, size=(height, width), mode="bicubic")[0].clamp(0, 1)


def _calm(network: nn.Module) -> None:
    """Let the branches of a deep network add little: of random weights, each makes more of the least difference."""
    for block in network.modules():
        if isinstance(block, vision.resnet.Bottleneck):
            block.bn3.weight.mul_(_SHARE)


def _normalize(network: nn.Module) -> None:
    """Let normalizations have the statistics of some pictures."""
    layers = [layer for layer in network.modules() if isinstance(layer, nn.BatchNorm2d)]
    kept = [layer.momentum for layer in layers]
    for layer in layers:
        layer.train().momentum = 1.0
    network.backbone(network.transform([picture() for _ in range(4)])[0].tensors)
    for layer, momentum in zip(layers, kept, strict=True):
        layer.eval().momentum = momentum


def _spread(network: nn.Module) -> None:
    """Scale the layers of `_SPREADS` in one run, each before those that read what it makes."""
    for name, layer in network.named_modules():
        for pattern, spread in _SPREADS.items():
            if re.fullmatch(pattern, name) and isinstance(layer, nn.Conv2d | nn.Linear):
                _scale_at_first_call(layer, spread)
    network([picture()])


def _scale_at_first_call(layer: nn.Conv2d | nn.Linear, spread: float) -> None:
    def scale(_: nn.Module, inputs: Outputs, result: Tensor) -> Tensor:
        handle.remove()
        layer.weight.mul_(spread / result.std())
        if layer.bias is not None:
            layer.bias.zero_()
        return layer(*inputs)

    handle = layer.register_forward_hook(scale)


def steady(network: Callable[[Tensor], Outputs], draw: Callable[[], Tensor], tries: int = 20) -> Tensor:
    """The first picture of those that `draw` makes of which the same is found with other noise on it.

    Raises `LookupError` if there is none.
    """
    for _ in range(tries):
        image = draw()
        with torch.no_grad():
            first, *others = (_arrays(network(noisy)) for noisy in _with_noise(image))
        if len(first[0]) and all(_are_near(matched(other, first), first) for other in others):
            return image
    raise LookupError(f"of {tries} pictures, rounding decides what is found in each")


def _with_noise(image: Tensor) -> Iterator[Tensor]:
    yield image
    for _ in range(4):
        yield image + _CHANGE * torch.randn(image.shape)


def _are_near(ours: Arrays, theirs: Arrays) -> bool:
    """Whether all is the same but for a little: of as many boxes, each beside its own."""
    if ours[0].shape != theirs[0].shape or not np.array_equal(ours[1], theirs[1]):
        return False
    return all(np.abs(a - b).max() <= _NEAR * np.abs(b).max() for a, b in zip(ours, theirs, strict=True))


def _arrays(results: Outputs) -> Arrays:
    return [result.numpy() for result in results]
