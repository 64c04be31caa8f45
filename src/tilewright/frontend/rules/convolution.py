"""ONNX's convolutions and their relatives."""

from collections.abc import Mapping

from tilewright.frontend.rules.rule import RuleFunction

RULES: Mapping[str, RuleFunction] = {}
