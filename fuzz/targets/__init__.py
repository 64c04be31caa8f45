"""The fuzzers by name. Their modules are imported when they are used, as a fuzzer instruments what it imports."""

from importlib import import_module

from fuzz.target import Target

NAMES = ("artifact", "manifest", "model", "program", "records", "rules", "target")


def load(name: str) -> Target:
    """The fuzzer called ``name``, one of ``NAMES``."""
    target = import_module(f"fuzz.targets.{name}").TARGET
    assert isinstance(target, Target) and target.name == name
    return target
