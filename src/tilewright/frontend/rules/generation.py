"""ONNX's operators that make tensors from little or nothing."""

from collections.abc import Mapping

from tilewright.frontend.rules.rule import RuleFunction

RULES: Mapping[str, RuleFunction] = {}
