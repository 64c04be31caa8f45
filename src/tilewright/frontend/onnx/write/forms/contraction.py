"""Sums of products, but for convolutions."""

from collections.abc import Mapping

from tilewright.frontend.onnx.write.forms.form import Form, FormFunction

FORMS: Mapping[str, FormFunction] = {
    "Det": Form("Det"),
    "Einsum": Form("Einsum", {"equation": "equation"}),
    "EinsumOfOne": Form("Einsum", {"equation": "equation"}),
    "Gemm": Form("Gemm", {"alpha": "alpha", "beta": "beta", "transpose_a": "transA", "transpose_b": "transB"}),
    "MatMul": Form("MatMul"),
}
