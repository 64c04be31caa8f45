"""The pipeline of a compilation, on one page.

graph -> normalize -> recognize -> algebra (-> superopt) -> choose -> layout -> flatten -> fuse -> loops -> schedule ->
main -> llvm, asm

The names are those of ``base.settings.Stage``, which ``TILEWRIGHT_PRINT`` takes. What follows is no text: the image
(relocatable objects and what they need) and the executable.
"""

from tilewright.base.superopt import Superopt
from tilewright.compilation import ALONE, Compiled, Options, Services, compile_prepared, prepare
from tilewright.graph import Graph
from tilewright.superoptimizer import compile_by_rules, superoptimize


def compile_graph(graph: Graph, options: Options, services: Services = ALONE) -> Compiled:
    """Compile ``graph``, with the search for a better graph that ``options.superopt`` asks for, and ``options.rules``.

    Raises ``UnsupportedModel`` naming the nodes that can't be compiled for ``options.target``, ``ResourceLimit`` if the
    model can't be kept within ``options.memory_limit``, ``BadInput`` if graphs are to be rewritten although sums must
    not change at all, and if a rule of ``options.rules`` is false.
    """
    prepared = prepare(graph, services.watch)
    if options.superopt is not Superopt.OFF:
        return superoptimize(prepared, options, services).compiled
    if options.rules:
        return compile_by_rules(prepared, options, services)
    return compile_prepared(prepared, options, services)
