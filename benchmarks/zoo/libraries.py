"""Libraries of networks, importable also where torchvision's native part is not (as beside a CPU build of torch).

Only its Python part is needed here, and that asks for nothing but the declaration of two native operators.
"""

import importlib
from types import ModuleType

import torch

_declarations: list[torch.library.Library] = []  # a declaration ends with its library


def _torchvision() -> ModuleType:
    try:
        return importlib.import_module("torchvision")
    except RuntimeError:  # "operator torchvision::nms does not exist"
        library = torch.library.Library("torchvision", "DEF")
        for operator in ("nms", "qnms"):
            library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _declarations.append(library)
        return importlib.import_module("torchvision")


vision = _torchvision().models
nasnet = importlib.import_module("timm.models.nasnet")  # this and the next one import torchvision
transformers = importlib.import_module("transformers")
