"""ONNX's quantization."""

from collections.abc import Mapping

from tilewright.frontend.rules.rule import RuleFunction

RULES: Mapping[str, RuleFunction] = {}
