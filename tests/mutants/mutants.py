"""The planted faults."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """One fault. ``file`` is relative to the package."""

    name: str
    file: str
    before: str
    after: str
    tests: tuple[str, ...]


_SHARD = "tests/codegen/test_random_schedules.py::test_random_schedules_keep_the_meaning"
_SCHEDULES = f"{_SHARD}[0]"
_ARITHMETIC = ("tests/codegen/test_arithmetic.py",)
_STATEMENTS = ("tests/codegen/test_statements.py", "tests/codegen/test_lanes.py", _SCHEDULES)
_NORMALIZE = ("tests/passes/test_normalize.py",)
_FOUND = ("tests/codegen/test_found_by_random_schedules.py", _SCHEDULES)
_RANDOM = (_SCHEDULES, f"{_SHARD}[1]", f"{_SHARD}[2]")

_ARTIFACT = ("tests/runtime/artifact",)

_WORK = ("tests/cost/test_work.py",)
_INSIGHT = ("tests/insight",)

MUTANTS = (
    Mutant(
        "signed compare becomes unsigned",
        "codegen/arithmetic.py",
        'sign = "" if op in (BinaryOp.EQ, BinaryOp.NE) else "s" if a.dtype.is_signed else "u"',
        'sign = "" if op in (BinaryOp.EQ, BinaryOp.NE) else "u"',
        _ARITHMETIC,
    ),
    Mutant(
        "extremum loses NaN",
        "codegen/arithmetic.py",
        "return self.select(unordered, a, chosen)",
        "return chosen",
        _ARITHMETIC,
    ),
    Mutant(
        "division does not floor",
        "codegen/arithmetic.py",
        "if floors:\n            signs",
        "if not floors:\n            signs",
        _ARITHMETIC,
    ),
    Mutant(
        "division by zero is not guarded",
        "codegen/arithmetic.py",
        "safe = self.select(trivial, one, b)",
        "safe = self.select(trivial, b, b)",
        _ARITHMETIC,
    ),
    Mutant(
        "shift beyond the width",
        "codegen/arithmetic.py",
        "return self.select(fits, shifted, beyond)",
        "return shifted",
        _ARITHMETIC,
    ),
    Mutant(
        "bfloat rounds down",
        "codegen/arithmetic.py",
        "literal(0x7FFF, dtypes.u32, lanes)",
        "literal(0x7FFE, dtypes.u32, lanes)",
        _ARITHMETIC,
    ),
    Mutant(
        "f64 to f16 rounds twice",
        "codegen/arithmetic.py",
        'self._convert("fptrunc", self._odd(a), dtypes.f32)',
        'self._convert("fptrunc", a, dtypes.f32)',
        _ARITHMETIC,
    ),
    Mutant(
        "tail mask lost on stores",
        "codegen/scalars.py",
        "if address.stride is None or guard.lanes is not None or guard.uniform is not None:\n            self._masked_store",
        "if address.stride is None:\n            self._masked_store",
        _STATEMENTS,
    ),
    Mutant(
        "private stores overwrite masked lanes",
        "codegen/scalars.py",
        "return self.ops.select(mask, stored, Value(old",
        "return self.ops.select(mask, stored, Value(stored.text if old else old",
        _STATEMENTS,
    ),
    Mutant(
        "lane stride ignored",
        "codegen/scalars.py",
        "stride += factor\n                continue",
        "stride = 1\n                continue",
        _STATEMENTS,
    ),
    Mutant(
        "loads survive stores",
        "codegen/values.py",
        "scope.loads.pop(buffer, None)",
        "pass",
        _STATEMENTS,
    ),
    Mutant(
        "last chunk of a region is dropped",
        "codegen/statements.py",
        "following = ops.binary(BinaryOp.ADD, chunk, integer(1))",
        "following = ops.binary(BinaryOp.ADD, chunk, integer(0))",
        _STATEMENTS,
    ),
    Mutant(
        "workspace of siblings overlaps what is live",
        "codegen/statements.py",
        "self.top = offset + size\n",
        "self.top = offset\n",
        _STATEMENTS,
    ),
    Mutant(
        "memory plan ignores the last use",
        "codegen/plan.py",
        "if other.first <= lifetime.last and lifetime.first <= other.last",
        "if other.first <= lifetime.first and lifetime.first < other.last",
        ("tests/codegen/test_plan.py",),
    ),
    Mutant(
        "parallel loops are recovered wrong",
        "codegen/statements.py",
        "remaining = quotient\n",
        "remaining = product\n",
        _STATEMENTS,
    ),
    Mutant(
        "partition shifts the second piece",
        "codegen/prepare/partition.py",
        "body = substitute(body, {loop.var: var + start})",
        "body = substitute(body, {loop.var: var + (start - 1)})",
        _STATEMENTS,
    ),
    Mutant(
        "partition drops the iterations after the cut",
        "codegen/prepare/partition.py",
        "edges = [0, *cuts, extent]\n    return seq",
        "edges = [0, *(cuts or [extent])]\n    return seq",
        _STATEMENTS,
    ),
    Mutant(
        "open guards are dropped",
        "codegen/prepare/partition.py",
        "if decided != TRUE:",
        "if decided == FALSE:",
        _STATEMENTS,
    ),
    Mutant(
        "initialization is missing",
        "loops/dissolve.py",
        "return seq(*here, stmt), [self._past(stmt, item) for item in hoisted if item.before != var]",
        "return seq(stmt), [self._past(stmt, item) for item in hoisted if item.before != var]",
        (_SCHEDULES,),
    ),
    Mutant(
        "predicate of a block is dropped",
        "loops/dissolve.py",
        "guarded = _guarded(block.predicate, body)",
        "guarded = _guarded(TRUE, body)",
        (_SCHEDULES,),
    ),
    Mutant(
        "interpreter lets an index wrap",
        "symbolic/expr.py",
        "return value - (1 << dtype.bits) if dtype.is_signed and value >> (dtype.bits - 1) else value",
        "return value",
        ("tests/symbolic/test_evaluate.py", "tests/symbolic/test_simplify.py"),
    ),
    Mutant(
        "lanes share a buffer",
        "codegen/prepare/lanes.py",
        "_own_buffers(_serial_inside(node.body), node.var, node.extent)",
        "_serial_inside(node.body)",
        ("tests/codegen/test_lanes.py",),
    ),
    Mutant(
        "intrinsic is shifted by the parameter's place",
        "codegen/prepare/inline.py",
        "moved = (start + index for start, index in zip(starts[leading:], indices, strict=True))",
        "moved = (start + index for start, index in zip(starts[: len(indices)], indices, strict=True))",
        ("tests/schedule/test_tensorize.py", *_RANDOM),
    ),
    # --- schedules ---------------------------------------------------------------------------------------------------
    Mutant(
        "split drops its predicate",
        "schedule/split.py",
        "if not prove(within, bounds):",
        "if prove(within, bounds):",
        _RANDOM,
    ),
    Mutant(
        "split counts digits with the wrong radix",
        "schedule/split.py",
        "value = value * extent + digit",
        "value = value * (extent + 1) + digit",
        _RANDOM,
    ),
    Mutant(
        "fuse swaps quotient and remainder",
        "schedule/fuse.py",
        "digit = fused // _product(loops[position + 1 :])",
        "digit = fused // _product(loops[: len(loops) - position - 1])",
        _RANDOM,
    ),
    Mutant(
        "reorder ignores where a fused reduction starts",
        "schedule/dependence.py",
        "if mixed and sorted(together",
        "if not mixed and sorted(together",
        _FOUND,
    ),
    Mutant(
        "reductions run in parallel",
        "schedule/dependence.py",
        "if determines(spatial, loop.var, varying, inside.bounds):",
        "if determines([b for _, b in _bound_axes(block)], loop.var, varying, inside.bounds):",
        _FOUND,
    ),
    Mutant(
        "values of other iterations are taken",
        "schedule/dependence.py",
        "prove(start <= first, bounds) and prove(first + count <= start + extent, bounds)",
        "prove(start <= first, bounds)",
        _FOUND,
    ),
    Mutant(
        "cached writes lose a dimension's order",
        "schedule/blocks.py",
        "body = Store(target, variables, change(Read(source, variables), variables))",
        "body = Store(target, variables, change(Read(source, variables[::-1]), variables))",
        _RANDOM,
    ),
    Mutant(
        "a moved producer starts at zero",
        "schedule/placing.py",
        "bindings.append(window.start + loops[-1].var)",
        "bindings.append(loops[-1].var)",
        _FOUND,
    ),
    Mutant(
        "regions forget their last element",
        "loops/access.py",
        "return result.lo, simplify(result.hi - result.lo + 1, bounds)",
        "return result.lo, simplify(result.hi - result.lo, bounds)",
        ("tests/loops/test_access.py",),
    ),
    Mutant(
        "reverse_compute_at leaves points out",
        "schedule/reverse_compute_at.py",
        "if not (prove(index[0] >= ZERO, axes) and prove(index[0] < size, axes)):",
        "if not prove(index[0] < size + size, axes):",
        _FOUND,
    ),
    Mutant(
        "inlining forgets what moved",
        "schedule/compute_inline.py",
        "if axis.extent != ONE and axis.var in free_vars(store.value):",
        "if axis.extent == ONE and axis.var in free_vars(store.value):",
        _FOUND,
    ),
    Mutant(
        "partial results start as nothing",
        "schedule/rfactor.py",
        "init = substitute_stmt(block.init, reduced)",
        "init = None",
        ("tests/schedule/test_rfactor.py",),
    ),
    Mutant(
        "decomposed init comes last",
        "schedule/decompose_reduction.py",
        "seq(init, body)",
        "seq(body, init)",
        _RANDOM,
    ),
    Mutant(
        "padding reads what a layout left undefined",
        "schedule/pad.py",
        "elif any(depends_on(start, list(self._grown)) for start, _ in region.ranges):",
        "elif not region.ranges:",
        _FOUND,
    ),
    # --- loops and symbols -------------------------------------------------------------------------------------------
    Mutant(
        "an empty sum is nothing",
        "loops/lower.py",
        "return any(axis.extent == ZERO for axis in op.reduce_axis)",
        "return any(axis.extent == ZERO for axis in op.axes)",
        _FOUND,
    ),
    Mutant(
        "interpreter takes undefined elements",
        "loops/interpreter.py",
        "if not storage.written[at]:",
        "if storage.written[at] is None:",
        ("tests/loops/test_interpreter.py",),
    ),
    Mutant(
        "regions end too early",
        "loops/access.py",
        "return Span(ZERO, bounds.extents[atom] - 1)",
        "return Span(ZERO, bounds.extents[atom] - 2)",
        ("tests/loops/test_access.py",),
    ),
    Mutant(
        "negative factors keep the interval's ends",
        "symbolic/bounds.py",
        "if coefficient < 0:\n            low, high = high, low",
        "if coefficient < 0:\n            low, high = low, high",
        ("tests/symbolic/test_simplify.py", "tests/symbolic/test_simplify_properties.py"),
    ),
    Mutant(
        "carry between digits is forgotten",
        "symbolic/division.py",
        "if lo is None or hi is None or lo // g != hi // g or not is_exact(high, self._bounds):",
        "if lo is None or hi is None or not is_exact(high, self._bounds):",
        ("tests/symbolic/test_division_digits.py",),
    ),
    Mutant(
        "a guard is solved one off",
        "symbolic/solve.py",
        "shifted(_floor(least, -coefficient, prover), 1)",
        "shifted(_floor(least, -coefficient, prover), 2)",
        ("tests/symbolic/test_solve.py",),
    ),
    # --- graphs ------------------------------------------------------------------------------------------------------
    Mutant(
        "fusion across shapes",
        "passes/fuse.py",
        "return free and node.op.kind is FusionKind.INJECTIVE and result.shape == value.shape",
        "return free and node.op.kind is FusionKind.INJECTIVE",
        ("tests/passes/test_fuse.py",),
    ),
    Mutant(
        "producers that others read join a group",
        "passes/fuse.py",
        "inside = all(reader.outputs[0] in members for reader in self._consumers[value])",
        "inside = any(reader.outputs[0] in members for reader in self._consumers[value])",
        ("tests/passes/test_fuse.py",),
    ),
    Mutant(
        "a post-dominator is passed",
        "passes/dominators.py",
        "if readers and value not in self._leaving else None",
        "if readers else None",
        ("tests/passes/test_fuse.py",),
    ),
    Mutant(
        "nodes with other attributes become one",
        "passes/normalize.py",
        "key = (node.op.name, node.inputs, node.attributes, len(node.outputs))",
        "key = (node.op.name, node.inputs, len(node.outputs))",
        _NORMALIZE,
    ),
    Mutant(
        "constants of other shapes become one",
        "passes/normalize.py",
        "key = (value.dtype, array.shape, _digest(array))",
        "key = (value.dtype, _digest(array))",
        _NORMALIZE,
    ),
    Mutant(
        "a cast does nothing",
        "passes/normalize.py",
        "(source.dtype, source.shape) == (result.dtype, result.shape)",
        "source.shape == result.shape",
        _NORMALIZE,
    ),
    # --- runtime -----------------------------------------------------------------------------------------------------
    Mutant(
        "strided feeds are read as they lie",
        "runtime/feeds.py",
        "if not (array.flags.c_contiguous and array.flags.aligned):",
        "if not array.flags.aligned:",
        ("tests/runtime/test_feeds.py",),
    ),
    Mutant(
        "feeds may disagree on an extent",
        "runtime/feeds.py",
        "extents.setdefault(extent, given) != given",
        "extents.setdefault(extent, given) < 0",
        ("tests/runtime/test_feeds.py",),
    ),
    Mutant(
        "relocations reach too far",
        "runtime/relocations.py",
        "distance = target - place\n        return distance % (1 << bits)",
        "distance = target - place + 4\n        return distance % (1 << bits)",
        ("tests/runtime/test_loader.py",),
    ),
    Mutant(
        "quota is rounded down",
        "runtime/sizing.py",
        "return math.ceil(min(quotas, default=MAX_THREADS))",
        "return math.floor(min(quotas, default=MAX_THREADS))",
        ("tests/runtime/test_sizing.py",),
    ),
    Mutant(
        "artifact: any signature will do",
        "runtime/artifact/origin.py",
        "if not hmac.compare_digest(signature, _signature(manifest, key)):",
        "if len(signature) != len(_signature(manifest, key)):",
        _ARTIFACT,
    ),
    Mutant(
        "artifact: a key that others can read",
        "runtime/artifact/origin.py",
        "facts.st_mode & (stat.S_IRWXG | stat.S_IRWXO)",
        "facts.st_mode & stat.S_IRWXO",
        _ARTIFACT,
    ),
    Mutant(
        "artifact: hashes of the objects are not checked",
        "runtime/artifact/artifact.py",
        "zip(objects, code, strict=True)",
        "zip(objects[:0], code, strict=False)",
        _ARTIFACT,
    ),
    Mutant(
        "artifact: missing features do not matter",
        "runtime/elsewhere.py",
        "missing = frozenset(features) - here.features",
        "missing = frozenset(features) & frozenset()",
        _ARTIFACT,
    ),
    Mutant(
        "artifact: the directory at the end is not compared",
        "runtime/artifact/archive.py",
        "if bytes(data[position:]) != _tail(entries, position):",
        "if len(data[position:]) != len(_tail(entries, position)):",
        _ARTIFACT,
    ),
    Mutant(
        "artifact: the manifest's second spelling is accepted",
        "runtime/artifact/description.py",
        "if to_json(described) != text:",
        "if not text:",
        _ARTIFACT,
    ),
    Mutant(
        "profile: a product counts beside its sum",
        "cost/work.py",
        "parts = tuple(factor for part in parts for factor in _factors(part))",
        "pass",
        _WORK,
    ),
    Mutant(
        "profile: all of a table is touched",
        "cost/work.py",
        "min(elements, self._accesses.get(buffer.name, 0))",
        "elements",
        _WORK,
    ),
    Mutant(
        "profile: a call's time goes to the one before",
        "codegen/kernel.py",
        "_mark(emitter.text, len(called))",
        "_mark(emitter.text, len(called) - 1)",
        _INSIGHT,
    ),
    Mutant(
        "compare: infinities are equal to anything",
        "insight/compare.py",
        "if not np.array_equal(x[~finite], y[~finite], equal_nan=True) or not np.isfinite(x[finite]).all():",
        "if not np.isfinite(x[finite]).all():",
        _INSIGHT,
    ),
    Mutant(
        "compare: the reference rounds to float32",
        "insight/references.py",
        'return array if kind in "iub" else array.astype(np.float64)',
        'return array if kind in "iub" else array.astype(np.float32).astype(np.float64) * 1.0001',
        _INSIGHT,
    ),
    Mutant(
        "explain: a node that nobody needs is dissolved",
        "insight/explain.py",
        "return Fate.DISSOLVED if needed.intersection(nodes) else Fate.UNUSED",
        "return Fate.DISSOLVED",
        _INSIGHT,
    ),
    Mutant(
        "repro: files outside of the model's folder come along",
        "insight/repro.py",
        'if not Path(name).is_absolute() and ".." not in Path(name).parts]',
        "]",
        _INSIGHT,
    ),
    Mutant(
        "coverage: the first refusal is the last",
        "frontend/coverage.py",
        "while self._model.graph.output or not found:",
        "while not found:",
        ("tests/frontend/test_coverage.py",),
    ),
)
