"""Tensors of PyTorch as inputs and outputs of models: they share memory with arrays.

PyTorch is optional, and is not loaded here first: where there is a tensor, it was loaded before.
"""

import sys
from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Protocol, TypeGuard, TypeVar

import ml_dtypes
import numpy as np

from tilewright.base.arrays import Array
from tilewright.base.errors import BadInput

if TYPE_CHECKING:
    import torch


class LikeTensor(Protocol):
    """What type checkers take for a tensor, where PyTorch need not be installed."""

    @property
    def requires_grad(self) -> bool: ...

    def detach(self) -> "LikeTensor": ...


TensorType = TypeVar("TensorType", bound=LikeTensor)


def is_tensor(value: object) -> "TypeGuard[torch.Tensor]":
    """Whether ``value`` is a tensor of PyTorch."""
    if sys.modules.get("torch") is None:
        return False
    import torch

    return isinstance(value, torch.Tensor)


def array_of(tensor: "torch.Tensor") -> Array:
    """The elements of a tensor in host memory, which are not copied; gradients are not followed.

    Raises what ``Tensor.numpy`` raises for tensors that are no arrays, such as sparse ones.
    """
    import torch

    if tensor.dtype == torch.bfloat16:
        return tensor.detach().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy(force=True)


def tensors_of(arrays: Iterable[Array], inputs: Sequence[object]) -> "list[torch.Tensor]":
    """Results of a model as tensors, which share their memory.

    If PyTorch would follow gradients of ``inputs``, the tensors require them, and a backward pass raises ``BadInput``.
    """
    import torch

    made = [_tensor_of(array) for array in arrays]
    followed = [one for one in inputs if is_tensor(one) and one.requires_grad]
    if not (followed and torch.is_grad_enabled()):
        return made
    attached = _inference_only().apply(followed[0], *made)
    return list(attached) if isinstance(attached, tuple) else [attached]


def _tensor_of(array: Array) -> "torch.Tensor":
    import torch

    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


@cache
def _inference_only() -> "type[torch.autograd.Function]":
    import torch
    from torch.autograd.function import FunctionCtx

    class InferenceOnly(torch.autograd.Function):
        """Results of a compiled model, in the place of what PyTorch would follow gradients through."""

        @staticmethod
        def forward(context: FunctionCtx, followed: object, *results: torch.Tensor) -> object:
            context.mark_non_differentiable(*(one for one in results if not one.is_floating_point()))
            return results

        @staticmethod
        def backward(context: object, *gradients: object) -> object:
            raise BadInput(
                "a compiled model has no backward pass: train the module itself and compile it afterwards, or run "
                "under torch.no_grad()"
            )

    return InferenceOnly
