"""ONNX's recurrent layers."""

from collections.abc import Mapping

from tilewright.frontend.rules.rule import RuleFunction

RULES: Mapping[str, RuleFunction] = {}
