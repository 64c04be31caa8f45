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
    """As the native operator, for a fixed number of samples.

    torchvision's definition in Python differs: samples beyond the image are the nearest element there, and not 0.
    """
    if sampling_ratio < 1:
        raise NotImplementedError(f"sampling_ratio is {sampling_ratio}; only a fixed number of samples is defined here")
    offset = 0.5 if aligned else 0.0
    corners = rois[:, 1:] * scale - offset
    rows, columns = (
        _weights(corners[:, axis], corners[:, axis + 2], bins, sampling_ratio, extent, aligned)
        for axis, bins, extent in ((1, height, data.shape[2]), (0, width, data.shape[3]))
    )
    pooled = data.new_zeros((len(rois), data.shape[1], height, width))
    for image, elements in enumerate(data):
        own = rois[:, 0] == image
        sampled = torch.einsum("kph,chw,kqw->kcpq", rows[own], elements, columns[own])
        parts = sampled.reshape(-1, data.shape[1], height, sampling_ratio, width, sampling_ratio)
        pooled[own] = parts.mean((3, 5))
    return pooled


def _weights(start: Tensor, end: Tensor, bins: int, samples: int, extent: int, aligned: bool) -> Tensor:
    """Of each region, for each sample along one dimension, the weights of the elements of the image."""
    length = end - start if aligned else (end - start).clamp(min=1.0)
    steps = (torch.arange(bins * samples) + 0.5) / (bins * samples)
    places = start[:, None] + steps * length[:, None]
    inside = (places >= -1.0) & (places <= extent)
    distances = (places.clamp(0.0, extent - 1.0)[..., None] - torch.arange(extent)).abs()
    return (1.0 - distances).clamp(min=0.0) * inside[..., None]
