"""Kinds of command-line options that benchmarks share."""


def numbers(text: str) -> list[int]:
    """ "1,2" -> [1, 2]"""
    return [int(part) for part in text.split(",")]


def names(text: str) -> list[str]:
    """ "a,b" -> ["a", "b"]"""
    return text.split(",")
