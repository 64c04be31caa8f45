"""Sums of products."""

from collections.abc import Mapping

from tilewright.frontend.onnx.write.forms.form import Form, FormFunction

FORMS: Mapping[str, FormFunction] = {
    "Einsum": Form("Einsum", {"equation": "equation"}),
    "EinsumOfOne": Form("Einsum", {"equation": "equation"}),
}
