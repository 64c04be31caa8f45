"""ONNX's sums of products."""

from collections.abc import Mapping

from tilewright.frontend.onnx.read.rules.rule import Rule, RuleFunction

RULES: Mapping[str, RuleFunction] = {
    "Det": Rule("Det"),
    "Gemm": Rule("Gemm", {"alpha": "alpha", "beta": "beta", "transA": "transpose_a", "transB": "transpose_b"}),
    "MatMul": Rule("MatMul"),
}
