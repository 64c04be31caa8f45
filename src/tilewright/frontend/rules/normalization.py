"""ONNX's normalizations."""

from collections.abc import Mapping, Sequence

from tilewright.frontend.rules.rule import Request, RuleFunction
from tilewright.graph import Value


def _batch_normalization(request: Request) -> Sequence[Value]:
    parameters = [request.input(position) for position in range(5)]
    if request.outputs > 1 or request.integer("training_mode", 0):
        raise request.unsupported("training mode is not supported; export the model for inference")
    if not request.integer("spatial", 1):
        raise request.unsupported("spatial=0 is not supported; export with opset 9 or later")
    return [request.apply("BatchNormalization", *parameters, epsilon=request.number("epsilon", 1e-5))]


RULES: Mapping[str, RuleFunction] = {
    "BatchNormalization": _batch_normalization,
}
