"""Parses terms and conditions of rules in Python's syntax by ``ast``, with limits on untrusted text.

``ast.parse`` raises ``RecursionError`` or ``MemoryError`` for too deep nesting, and ``ValueError`` for invalid
characters; what it accepts may still be too deep for recursive functions.
"""

import ast

MAX_TEXT = 4096
"""Maximum characters of a line; the longest of the package's own rules has 300."""
MAX_DEPTH = 64
"""Maximum nesting of a term."""


def parse_expression(text: str) -> ast.expr:
    """The syntax tree of ``text``. Raises ``ValueError``, with the reason, for text that is invalid or too large."""
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
    if len(text) > 2 * MAX_DEPTH:  # each level takes at least one character
        _check_depth(tree)
    return tree


def _check_depth(tree: ast.expr) -> None:
    level: list[ast.AST] = [tree]
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return
    raise ValueError(f"it is nested too deeply; {MAX_DEPTH} levels are allowed")
