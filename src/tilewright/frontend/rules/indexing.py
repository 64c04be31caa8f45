"""ONNX's gathers and scatters by data."""

from collections.abc import Mapping

from tilewright.frontend.rules.rule import RuleFunction

RULES: Mapping[str, RuleFunction] = {}
