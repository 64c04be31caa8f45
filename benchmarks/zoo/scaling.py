"""Scale random weights so that every layer's output has a standard deviation in [0.1, 10].

With weights as libraries initialize them, values vanish or explode over many layers, and errors of one layer then hide
those of others. One forward pass over calibration inputs sets every layer in turn, as it is reached: the weights of a
linear layer are divided by the standard deviation of its output, a batch norm takes the statistics of its input.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ..accuracy import out_of_scale

_LINEAR = (nn.Linear, nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d, nn.Embedding)
_BATCH_NORM = (nn.BatchNorm2d, nn.BatchNorm3d)
_MEANS = (nn.Softmax, nn.AdaptiveAvgPool2d)  # over n elements: they shrink with n, whatever the weights
MOST_BIAS = 0.2


def calibrate(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    """Set weights and statistics of `module`, in evaluation mode, by one pass over `inputs` (a batch of more than 1).

    Raises ValueError when some layer's output is out of scale all the same.
    """
    handles = [layer.register_forward_hook(_set_linear) for layer in _of_kind(module, _LINEAR)]
    handles += [
        layer.register_forward_hook(_set_attention, with_kwargs=True)
        for layer in _of_kind(module, (nn.MultiheadAttention,))
    ]
    handles += [layer.register_forward_pre_hook(_take_statistics) for layer in _of_kind(module, _BATCH_NORM)]
    with torch.no_grad(), _removed(handles):
        module(*inputs)
    check_scale(module, inputs)


def check_scale(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    """Raise ValueError when a layer's output has a standard deviation outside of [0.1, 10] for these inputs."""
    outside = out_of_scale(deviations(module, inputs))
    if outside:
        raise ValueError(f"layers with outputs out of scale: {outside}")


def deviations(module: nn.Module, inputs: tuple[Tensor, ...]) -> dict[str, float]:
    """The standard deviation of every innermost layer's output, by the layer's name; means left out."""
    seen: dict[str, float] = {}

    def recorder(name: str) -> Callable[[nn.Module, object, object], None]:
        def record(layer: nn.Module, arguments: object, output: object) -> None:
            first = output[0] if isinstance(output, tuple) else output  # an LSTM returns its states, too
            assert isinstance(first, Tensor)
            seen[name] = float(first.std())

        return record

    innermost = [(name, layer) for name, layer in module.named_modules() if not list(layer.children())]
    measured = [(name, layer) for name, layer in innermost if not isinstance(layer, _MEANS)]
    with torch.no_grad(), _removed([layer.register_forward_hook(recorder(name)) for name, layer in measured]):
        module(*inputs)
    return seen


def _of_kind(module: nn.Module, kinds: tuple[type[nn.Module], ...]) -> list[nn.Module]:
    return [layer for layer in module.modules() if isinstance(layer, kinds)]


def _set_linear(layer: nn.Module, arguments: tuple[Tensor, ...], output: Tensor) -> Tensor:
    """Scale a linear layer, so that its output's standard deviation is about 1, and give it a random bias.

    Libraries begin with biases of zero, which would hide a bias that is lost, and exporters make one constant of them.
    """
    layer.weight /= output.std()
    bias = getattr(layer, "bias", None)
    if bias is not None:
        nn.init.uniform_(bias, -MOST_BIAS, MOST_BIAS)
    return layer.forward(*arguments)


def _set_attention(
    layer: nn.Module, arguments: tuple[Tensor, ...], options: Mapping[str, bool], output: tuple[Tensor, Tensor | None]
) -> tuple[Tensor, Tensor | None]:
    """Scale the last product of an attention, which is no layer of its own, as ``_set_linear`` does."""
    layer.out_proj.weight /= output[0].std()
    nn.init.uniform_(layer.out_proj.bias, -MOST_BIAS, MOST_BIAS)
    return layer.forward(*arguments, **options)


def _take_statistics(layer: nn.Module, arguments: tuple[Tensor, ...]) -> None:
    """Give a batch norm its input's statistics per channel, and a random scale and shift that are no identity."""
    values = arguments[0]
    axes = [axis for axis in range(values.ndim) if axis != 1]
    layer.running_mean.copy_(values.mean(axes))
    layer.running_var.copy_(values.var(axes))
    nn.init.uniform_(layer.weight, 0.7, 1.3)
    nn.init.uniform_(layer.bias, -MOST_BIAS, MOST_BIAS)


@contextmanager
def _removed(handles: Iterable[RemovableHandle]) -> Iterator[None]:
    """Remove hooks at the end."""
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
