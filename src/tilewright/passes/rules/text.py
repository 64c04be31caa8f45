"""The text of rules: a file of them prints, parses back, and is compared line by line.

::

    # Two products of one matrix are one.
    rule matmul-shared-left
      for x[*b, m, k], v: weight[k, n1], w: weight[k, n2]
      let t = MatMul(x, Concat(v, w, axis=1))
      from MatMul(x, v); MatMul(x, w)
      to Slice(t, axes=(-1,), starts=(0,), ends=(n1,)); Slice(t, axes=(-1,), starts=(n1,), ends=(n1 + n2,))
      need n1 % 16 == 0
      proof proved by slice-of-concat, matmul-concat-columns; 8 shapes

Variables are floats. ``x: byte[m, k]`` are integers of 8 bits, ``x: integer[m, k]`` any integers, which wrap around,
and ``s: scale[]`` are known positive numbers by which integers are multiplied; ``w: weight byte[k, n]`` are known
bytes.

``.1`` is the second result of an operator; without it, the first. ``**rest`` denotes all attributes that are not
written, and ``*b`` in an attribute, as in ``shape=(*b, m * k)``, for the extents of leading dimensions. Terms and
conditions have Python's syntax for calls and integers.

A block can be a rule for each of several ranks. After ``ranks 1 to 3``, ``x[n, c, h...]`` is ``x[n, c, h1]`` in one
rule, ``x[n, c, h1, h2]`` in the next, and so on; ``1...`` is as many ones. Their names end with ``-1d``, ``-2d`` ...
They are separate rules, and print as such. In a proof of such a block, ``Conv-of-batches-*d`` is the axiom of the same
rank.

Before a block, ``each A, B in 1: x | 2: y`` repeats it for each case, with the words ``A`` and ``B`` replaced::

    each F in Relu | Exp
    each A, D in -1: | -2: , k
    rule F-of-concat.A
      for x[*s, n1 D], y[*s, n2 D]
      from F(Concat(x, y, axis=A))
      to Concat(F(x), F(y), axis=A)

is four rules: ``Relu-of-concat.-1``, ``Relu-of-concat.-2`` and so on.
"""

import ast
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, product
from math import prod
from typing import NoReturn, TypeAlias

from tilewright.base.dtypes import DType
from tilewright.base.dtypes import parse as parse_type
from tilewright.base.errors import BadProgram, ParseError, UnsupportedDType
from tilewright.base.names import readable
from tilewright.ops import Attribute
from tilewright.ops.operator import find
from tilewright.passes.rules.syntax import parse_expression
from tilewright.passes.rules.terms import Apply, Evidence, Kind, Number, Proof, Rule, Term, Variable, subterms
from tilewright.symbolic.expr import Expr, Symbol, const, equal, not_equal

_ARITHMETIC: Mapping[type[ast.operator], Callable[[Expr, Expr], Expr]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
}
_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Expr, Expr], Expr]] = {
    ast.Eq: lambda a, b: equal(a, b),
    ast.NotEq: lambda a, b: not_equal(a, b),
    ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b,
    ast.Gt: lambda a, b: a > b,
    ast.GtE: lambda a, b: a >= b,
}
_TYPES = ("to", "dtype", "precision")
"""Attributes that are data types, written as ``"i32"``."""
MAX_CASES = 1024
"""Maximum rules from one block."""
MAX_SHOWN = 400
"""Maximum characters of a line quoted in an error."""
_RESULT = re.compile(r"(?<=\))\.(\d+)")
"""``f(x).1``: not valid Python, but ``f(x)[1]`` is."""
_REPEATED = re.compile(r"(\w+)\.\.\.,?")
_RANKS = re.compile(r"(\d) to (\d)")
_KINDS: Mapping[str, Kind] = {kind.value: kind for kind in Kind if kind is not Kind.ANY}
_WORDS = rf"(?:\s*(?:weight|{'|'.join(_KINDS)}))+\s*"
"""After the name of a variable: whether it is a weight, and its kind."""
Case: TypeAlias = Mapping[str, str]
"""Replacements of words."""


@dataclass(frozen=True, slots=True)
class Block:
    """The rules of one block of a file: one for each case and rank."""

    rules: tuple[Rule, ...]
    ranks: range | None
    last: int
    """The number of its last line."""
    proofs: frozenset[int]
    """The numbers of the lines with proofs."""


def parse_rules(text: str) -> list[Rule]:
    """All rules of a file. Raises ``ParseError`` with the line."""
    return [rule for block in parse_blocks(text) for rule in block.rules]


def parse_blocks(text: str) -> list[Block]:
    """The rules of a file, and their positions. Raises ``ParseError`` with the line."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings of Python's parser about text that is refused anyway
        return _read_blocks(list(_blocks(text)))


def _read_blocks(blocks: "list[_Block]") -> list[Block]:
    written = [[ranked for one in block.cases() for ranked in one.ranked()] for block in blocks]
    names: set[str] = set()
    for one in (one for ones in written for one in ones):
        if one.name in names:
            raise ParseError(f"line {one.number}: there are two rules {one.name}")
        names.add(one.name)
    return [block.read(ones) for block, ones in zip(blocks, written, strict=True)]


def _blocks(text: str) -> "Iterator[_Block]":
    """Raises ``ParseError``."""
    block: _Block | None = None
    families: list[list[Case]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        content = line.split("#", 1)[0].strip()
        keyword, _, rest = content.partition(" ")
        if keyword == "each":
            families.append(_Reader(number, rest, {}).cases())
        elif keyword == "rule":
            if block is not None:
                yield block
            block = _Block(number, rest.strip(), families=families)
            families = []
        elif content and (families or block is None):
            raise ParseError(f"line {number}: `{content}` stands before the first line of a rule")
        elif content and block is not None:
            block.lines.append((number, keyword, rest.strip()))
    if block is not None:
        yield block


def read_declarations(number: int, text: str) -> list[Variable]:
    """The variables of a line ``for``. Raises ``ParseError`` with its ``number``."""
    return list(_Reader(number, text, {}).declarations())


def print_rules(rules: Iterable[Rule]) -> str:
    """The text that ``parse_rules`` reads."""
    return "\n\n".join(map(print_rule, rules)) + "\n"


def print_rule(rule: Rule) -> str:
    """One rule in readable form: shared terms have names."""
    names = dict(_shared(rule))
    lines = [f"rule {rule.name}"]
    if rule.variables:
        lines.append(f"for {', '.join(map(_declaration, rule.variables))}")
    for term, name in names.items():
        lines.append(f"let {name} = {print_term(term, {t: n for t, n in names.items() if t is not term})}")
    lines.append(f"from {'; '.join(print_term(term, names) for term in rule.sources)}")
    lines.append(f"to {'; '.join(print_term(term, names) for term in rule.targets)}")
    if rule.needs:
        lines.append(f"need {', '.join(map(str, rule.needs))}")
    if rule.proof is not None:
        lines.append(print_proof(rule.proof))
    return "\n  ".join(lines)


def print_proof(proof: Proof) -> str:
    """The line that says it."""
    by = f" by {', '.join(proof.axioms)}" if proof.axioms else ""
    return f"proof {proof.evidence.value}{by}; {proof.shapes} shapes"


def print_term(term: Term, names: Mapping[Term, str] | None = None) -> str:
    """One term; ``names``: those of terms that have one."""
    known = names or {}
    if term in known:
        return known[term]
    match term:
        case Variable(name):
            return name
        case Number(value):
            return repr(value)
        case Apply(op, operands, attributes, rest, output):
            listed = [print_term(operand, known) for operand in operands]
            listed += [f"{name}={_print_attribute(value)}" for name, value in attributes]
            listed += [f"**{rest}"] if rest else []
            return f"{op}({', '.join(listed)})" + (f".{output}" if output else "")


def _print_attribute(value: Attribute) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_print_attribute, value))}{',' * (len(value) == 1)})"
    if isinstance(value, DType):
        return f'"{value}"'
    return str(value) if isinstance(value, Expr) else repr(value)


def _declaration(variable: Variable) -> str:
    extents = ([f"*{variable.leading}"] if variable.leading else []) + [str(extent) for extent in variable.shape]
    is_told = variable.is_weight and variable.kind is not Kind.SCALE
    words = ["weight"] * is_told + ([] if variable.kind is Kind.ANY else [variable.kind.value])
    return f"{variable.name}{': ' if words else ''}{' '.join(words)}[{', '.join(extents)}]"


def _shared(rule: Rule) -> Iterator[tuple[Term, str]]:
    """Applications that a side uses more than once, and a name for each, operands first."""
    taken = {variable.name for variable in rule.variables} | {symbol.name for symbol in rule.symbols}
    names = (name for name in map("t{}".format, count()) if name not in taken)
    uses = [Counter(_operands(side)) for side in (rule.sources, rule.targets)]
    for part in subterms([*rule.sources, *rule.targets]):
        if isinstance(part, Apply) and any(counted[part] > 1 for counted in uses):
            yield part, next(names)


def _operands(side: Sequence[Term]) -> Iterator[Term]:
    """The subterms of a side, with repetition."""
    for part in subterms(side):
        if isinstance(part, Apply):
            yield from part.operands


@dataclass(slots=True)
class _Block:
    """The lines of one rule, and the bindings of its names."""

    number: int
    name: str
    lines: list[tuple[int, str, str]] = field(default_factory=list[tuple[int, str, str]])
    families: list[list[Case]] = field(default_factory=list[list[Case]])
    terms: dict[str, Term] = field(default_factory=dict[str, Term])
    variables: list[Variable] = field(default_factory=list[Variable])

    def cases(self) -> "Iterator[_Block]":
        """A block for each choice of a case of each family. Raises ``ParseError``."""
        if prod(map(len, self.families)) > MAX_CASES:
            _Reader(self.number, self.name, {}).fail(f"it stands for more than {MAX_CASES} rules")
        for choice in product(*self.families):
            values = {word: value for case in choice for word, value in case.items()}
            name = _replaced(self.name, {word: value.replace(", ", "") for word, value in values.items()})
            yield _Block(self.number, name, [(n, keyword, _replaced(text, values)) for n, keyword, text in self.lines])

    def ranked(self) -> "list[_Block]":
        """A block for each of the ranks, if it names some. Raises ``ParseError``."""
        ranks = self.ranks()
        return [self] if ranks is None else list(map(self._of_rank, ranks))

    def ranks(self) -> range | None:
        """The ranks in its header. Raises ``ParseError``."""
        lines = [(number, text) for number, keyword, text in self.lines if keyword == "ranks"]
        if not lines:
            return None
        found = _RANKS.fullmatch(lines[0][1])
        if found is None or len(lines) > 1:
            _Reader(*lines[-1], {}).fail("ranks are given once, as `1 to 3`")
        return range(int(found[1]), int(found[2]) + 1)

    def read(self, written: "Sequence[_Block]") -> Block:
        """The rules of a block, ``written`` once for each case and rank. Raises ``ParseError``."""
        last = max((number for number, _, _ in self.lines), default=self.number)
        proofs = frozenset(number for number, keyword, _ in self.lines if keyword == "proof")
        return Block(tuple(one.rule() for one in written), self.ranks(), last, proofs)

    def _of_rank(self, rank: int) -> "_Block":
        lines = [
            (number, keyword, _REPEATED.sub(lambda found: _repeated(found[1], rank), text).replace("-*d", f"-{rank}d"))
            for number, keyword, text in self.lines
            if keyword != "ranks"
        ]
        return _Block(self.number, f"{self.name}-{rank}d", lines)

    def rule(self) -> Rule:
        """Raises ``ParseError``."""
        sources: list[Term] = []
        targets: list[Term] = []
        needs: list[Expr] = []
        proof: Proof | None = None
        for number, keyword, text in self.lines:
            reader = _Reader(number, text, self.terms)
            match keyword:
                case "for":
                    self._declare(reader)
                case "let":
                    name, _, value = text.partition("=")
                    self.terms[name.strip()] = _Reader(number, value.strip(), self.terms).term()
                case "from":
                    sources += reader.terms()
                case "to":
                    targets += reader.terms()
                case "need":
                    needs += reader.conditions()
                case "proof":
                    proof = reader.proof()
                case _:
                    reader.fail(f"`{keyword}` is none of for, let, from, to, need, proof")
        if not self.name or not sources or len(sources) != len(targets):
            raise ParseError(
                f"line {self.number}: rule {self.name or '(no name)'} has {len(sources)} terms in `from` and "
                f"{len(targets)} in `to`; give it as many of both"
            )
        return Rule(self.name, tuple(self.variables), tuple(sources), tuple(targets), tuple(needs), proof)

    def _declare(self, reader: "_Reader") -> None:
        for variable in reader.declarations():
            if variable.name in self.terms:
                reader.fail(f"{variable.name} is declared twice")
            self.terms[variable.name] = variable
            self.variables.append(variable)


def _replaced(text: str, values: Case) -> str:
    pattern = "|".join(map(re.escape, values))
    return re.sub(rf"\b({pattern})\b", lambda found: values[found[1]], text) if values else text


def _repeated(word: str, rank: int) -> str:
    """``word`` for each of ``rank`` dimensions; with a trailing comma, as one number in parentheses is no tuple."""
    return "".join(f"{word}, " if word.isdigit() else f"{word}{position}, " for position in range(1, rank + 1))


@dataclass(frozen=True, slots=True)
class _Reader:
    """One line."""

    number: int
    text: str
    known: Mapping[str, Term]

    def fail(self, reason: str) -> NoReturn:
        raise ParseError(f"line {self.number}: {reason}, in `{readable(self.text, MAX_SHOWN)}`")

    def declarations(self) -> Iterator[Variable]:
        listed = re.findall(rf"\s*(\w+)\s*(?::({_WORDS}))?\[([^\]]*)\]\s*(?:,|$)", self.text)
        if self.text and "".join(re.split(rf"\s*\w+\s*(?::{_WORDS})?\[[^\]]*\]\s*(?:,|$)", self.text)).strip():
            self.fail(
                "variables are declared as `x[m, k]`, `x[*b, m, k]`, `w: weight[k, n]` or `q: byte[m, k]`: a weight, "
                f"and one of {', '.join(_KINDS)}"
            )
        for name, words, extents in listed:
            parts = [part.strip() for part in extents.split(",") if part.strip()]
            leading = parts.pop(0)[1:].strip() if parts and parts[0].startswith("*") else None
            if leading is not None and not leading.isidentifier():
                self.fail("leading dimensions have a name, as in `x[*b, m]`")
            kind = next((_KINDS[word] for word in words.split() if word in _KINDS), Kind.ANY)
            is_weight = "weight" in words.split() or kind is Kind.SCALE
            yield Variable(name, tuple(map(self._extent, parts)), leading, is_weight, kind)

    def cases(self) -> list[Case]:
        """The replacements of one family's words, for each of its cases."""
        names, separator, listed = self.text.partition(" in ")
        words = [name.strip() for name in names.split(",")]
        rows = [[part.strip() for part in case.split(":")] for case in listed.split("|")]
        if not separator or any(len(row) != len(words) for row in rows):
            self.fail("write `each A, B in a: b | c: d`, as many entries as there are words")
        return [dict(zip(words, row, strict=True)) for row in rows]

    def term(self) -> Term:
        return self._term(self._parsed(self.text))

    def terms(self) -> list[Term]:
        return [self._term(self._parsed(part.strip())) for part in self.text.split(";")]

    def conditions(self) -> list[Expr]:
        return [self._condition(item) for item in self._items(self._parsed(f"({self.text},)"))]

    def proof(self) -> Proof:
        found = re.fullmatch(r"(\w+)(?: by ([\w\-., ]+))?; (\d{1,9}) shapes", self.text)
        if found is None or found[1] not in {kind.value for kind in Evidence}:
            self.fail(f"a proof is `{'|'.join(e.value for e in Evidence)} [by AXIOM, ...]; N shapes`")
        axioms = tuple(name.strip() for name in (found[2] or "").split(",") if name.strip())
        return Proof(Evidence(found[1]), axioms, int(found[3]))

    def _parsed(self, text: str) -> ast.expr:
        try:
            return parse_expression(_RESULT.sub(r"[\1]", text))
        except ValueError as error:
            self.fail(str(error))

    def _term(self, node: ast.expr) -> Term:
        match node:
            case ast.Name(id=name):
                if name not in self.known:
                    self.fail(f"{name} is not declared: write `for {name}[...]` or `let {name} = ...` before")
                return self.known[name]
            case ast.Constant(value=bool() | str()):
                self.fail(f"{node.value!r} is no operand")
            case ast.Constant(value=int() | float() as value):
                return Number(float(value))
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
                return Number(-float(value))
            case ast.Subscript(value=inner, slice=ast.Constant(value=int() as output)):
                applied = self._term(inner)
                if not isinstance(applied, Apply):
                    self.fail("only what an operator makes has several results")
                return Apply(applied.op, applied.operands, applied.attributes, applied.rest, output)
            case ast.Call(func=ast.Name(id=name), args=operands, keywords=keywords):
                return self._apply(name, operands, keywords)
            case _:
                self.fail(f"`{ast.unparse(node)}` is no term")

    def _apply(self, name: str, operands: Sequence[ast.expr], keywords: Sequence[ast.keyword]) -> Apply:
        op = find(name)
        if op is None:
            self.fail(f"{name} is no operator")
        rest = [self._name(keyword.value) for keyword in keywords if keyword.arg is None]
        if len(rest) > 1:
            self.fail("only one `**name` can stand for what is not written")
        attributes = [(k.arg, self._typed(k.arg, self._attribute(k.value))) for k in keywords if k.arg is not None]
        return Apply(op, tuple(map(self._term, operands)), tuple(attributes), rest[0] if rest else None)

    def _name(self, node: ast.expr) -> str:
        if not isinstance(node, ast.Name):
            self.fail(f"`**{ast.unparse(node)}` is no name of attributes")
        return node.id

    def _attribute(self, node: ast.expr) -> Attribute:
        if isinstance(node, ast.Tuple):
            items = tuple(map(self._integer, node.elts))
            return tuple(int(str(i)) if not i.variables else i for i in items)
        if isinstance(node, ast.Constant) and isinstance(node.value, bool | str | float):
            return node.value
        value = self._integer(node)
        return value if value.variables else int(str(value))

    def _typed(self, name: str, value: Attribute) -> Attribute:
        """``value``; a data type, if it is the name of one, and the attribute is one."""
        if name not in _TYPES or not isinstance(value, str):
            return value
        try:
            return parse_type(value)
        except UnsupportedDType as error:
            self.fail(str(error))

    def _items(self, node: ast.expr) -> Sequence[ast.expr]:
        if not isinstance(node, ast.Tuple):  # the parentheses around it were closed and opened again inside
            self.fail("these are no conditions, separated by commas")
        return node.elts

    def _extent(self, text: str) -> Expr:
        return self._integer(self._parsed(text))

    def _integer(self, node: ast.expr) -> Expr:
        match node:
            case ast.Name(id=name):
                return Symbol(name)
            case ast.Starred(value=ast.Name(id=name)):
                return Symbol(f"*{name}")
            case ast.Constant(value=int() as value):
                return self._literal(value)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return const(0) - self._integer(operand)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
                return _ARITHMETIC[type(op)](self._integer(left), self._integer(right))
            case _:
                self.fail(f"`{ast.unparse(node)}` is no integer expression")

    def _literal(self, value: int) -> Expr:
        try:
            return const(value)
        except BadProgram as error:
            self.fail(str(error))

    def _condition(self, node: ast.expr) -> Expr:
        match node:
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARISONS:
                return _COMPARISONS[type(op)](self._integer(left), self._integer(right))
            case _:
                self.fail(f"`{ast.unparse(node)}` is no comparison of integers")
