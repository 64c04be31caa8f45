"""ONNX's sums of products."""

from collections.abc import Mapping

from tilewright.frontend.onnx.read.rules.rule import Rule, RuleFunction, same

RULES: Mapping[str, RuleFunction] = {
    "Det": Rule("Det"),
    "Gemm": Rule("Gemm", {**same("alpha", "beta"), "transA": "transpose_a", "transB": "transpose_b"}),
    "MatMul": Rule("MatMul"),
}
