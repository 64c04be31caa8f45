"""torchvision's native operators of detection networks in plain torch, where its native part can't be loaded."""

import importlib

import torch
from torch import Tensor

_NMS = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_ROI_ALIGN = (
    "(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, int sampling_ratio, "
    "bool aligned) -> Tensor"
)


def declare() -> torch.library.Library:
    """Declare what torchvision needs to be imported. The operators live as long as the result."""
    library = torch.library.Library("torchvision", "DEF")
    library.define(f"nms{_NMS}")
    library.define(f"qnms{_NMS}")
    library.define(f"roi_align{_ROI_ALIGN}")
    return library


def define(library: torch.library.Library) -> None:
    """Give the declared operators meanings, and let torchvision, which is imported by now, use them."""
    library.impl("nms", _nms, "CPU")
    library.impl("roi_align", _roi_align, "CPU")
    for name in ("boxes", "roi_align"):
        module = importlib.import_module(f"torchvision.ops.{name}")
        module._assert_has_ops = _nothing
        module._has_ops = _yes


def _nothing() -> None:
    """There is nothing to be asserted. TorchScript takes no lambda."""


def _yes() -> bool:
    return True


def _nms(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """The places of boxes that overlap none of a higher score that is kept, by falling score."""
    overlaps = importlib.import_module("torchvision.ops.boxes").box_iou(boxes, boxes) > iou_threshold
    removed = torch.zeros(len(boxes), dtype=torch.bool)
    kept: list[int] = []
    for place in scores.argsort(descending=True, stable=True).tolist():
        if not removed[place]:
            kept.append(place)
            removed |= overlaps[place]
    return torch.tensor(kept, dtype=torch.int64)


def _roi_align(
    data: Tensor, rois: Tensor, scale: float, height: int, width: int, sampling_ratio: int, aligned: bool
) -> Tensor:
    """torchvision's own definition, not compiled."""
    definition = importlib.import_module("torchvision.ops.roi_align")._roi_align
    return definition.__wrapped__(data, rois, scale, height, width, sampling_ratio, aligned)
