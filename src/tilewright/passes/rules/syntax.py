"""Python's syntax, for terms and conditions of rules: parsed by ``ast``, within limits that keep any text harmless.

``ast.parse`` answers nesting that is too deep for it with ``RecursionError`` or ``MemoryError``, and characters that
are none with ``ValueError``; what it accepts may still be too deep for a function that calls itself for each level.
"""

import ast

MAX_TEXT = 4096
"""Characters of a line; the longest of the package's own rules has 300."""
MAX_DEPTH = 64
"""Levels of a term."""


def parse_expression(text: str) -> ast.expr:
    """The syntax tree of ``text``. Raises ``ValueError``, which says why, for what is none or beyond the limits."""
    if len(text) > MAX_TEXT:
        raise ValueError(f"it has {len(text)} characters; {MAX_TEXT} are allowed")
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise ValueError(error.msg) from error
    except UnicodeEncodeError as error:
        raise ValueError("it has characters that are no Unicode text") from error
    except (RecursionError, MemoryError) as error:
        raise ValueError(f"it is nested too deeply; {MAX_DEPTH} levels are allowed") from error
    if len(text) > 2 * MAX_DEPTH:  # each level takes a character
        _check_depth(tree)
    return tree


def _check_depth(tree: ast.expr) -> None:
    level: list[ast.AST] = [tree]
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return
    raise ValueError(f"it is nested too deeply; {MAX_DEPTH} levels are allowed")
