"""The pipeline of a compilation.

graph -> normalize -> recognize -> algebra (-> superopt) -> choose -> layout -> flatten -> fuse -> loops -> schedule ->
main -> llvm, asm

The names are those of ``base.settings.Stage``, for ``TILEWRIGHT_PRINT``. They are followed by the image (relocatable
objects and their requirements) and the executable, which are not printed.
"""

from tilewright.base.errors import Unsupported
from tilewright.base.superopt import Superopt
from tilewright.compilation import ALONE, Compiled, Options, Services, compile_prepared, prepare
from tilewright.graph import Graph
from tilewright.passes.parts import is_cut
from tilewright.superoptimizer import compile_by_rules, superoptimize


def compile_graph(graph: Graph, options: Options, services: Services = ALONE) -> Compiled:
    """Compile ``graph``, after the search for a better graph by ``options.superopt`` and ``options.rules``.

    Raises ``UnsupportedModel`` naming the nodes that can't be compiled for ``options.target``, ``ResourceLimit`` if the
    model does not fit in ``options.memory_limit``, ``BadInput`` for a rule in ``options.rules`` that is false, or
    that ``options.math`` does not permit, ``Unsupported`` for a graph that has to be cut first (``passes.parts``).
    """
    if is_cut(graph):
        raise Unsupported("shapes in the model depend on data: tilewright.compile makes such a model, in stages")
    prepared = prepare(graph, services.watch, options.math)
    if options.superopt is not Superopt.OFF:
        return superoptimize(prepared, options, services).compiled
    if options.rules:
        return compile_by_rules(prepared, options, services)
    return compile_prepared(prepared, options, services)
