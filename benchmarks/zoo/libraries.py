"""Libraries of networks, importable also where torchvision's native part is not (as beside a CPU build of torch).

Its Python part asks for nothing but the declaration of native operators; those of detection networks are in torch.
"""

import importlib
from types import ModuleType

import torch

from . import detection_operators

_declarations: list[torch.library.Library] = []  # a declaration ends with its library


def _torchvision() -> ModuleType:
    try:
        return importlib.import_module("torchvision")
    except RuntimeError:  # "operator torchvision::nms does not exist"
        library = detection_operators.declare()
        _declarations.append(library)
        imported = importlib.import_module("torchvision")
        detection_operators.define(library)
        return imported


vision = _torchvision().models
nasnet = importlib.import_module("timm.models.nasnet")  # this and the next one import torchvision
transformers = importlib.import_module("transformers")
