"""The pipeline of a compilation.

graph -> normalize -> recognize -> algebra (-> superopt) -> choose -> layout -> flatten -> fuse -> loops -> schedule ->
main -> llvm, asm

The names are those of ``base.settings.Stage``, for ``TILEWRIGHT_PRINT``. They are followed by the image (relocatable
objects and their requirements) and the executable, which are not printed.
"""

from dataclasses import replace

from tilewright.base.errors import Unsupported
from tilewright.base.handed import Handed
from tilewright.base.superopt import Superopt
from tilewright.compilation import ALONE, Compiled, Options, Services, compile_handed, prepare
from tilewright.graph import Graph
from tilewright.passes.parts import is_cut


def compile_graph(graph: Graph, options: Options, services: Services = ALONE) -> Compiled:
    """Compile ``graph``, after the search for a better graph by ``options.superopt`` and ``options.rules``.

    Raises ``UnsupportedModel`` naming the nodes that can't be compiled for ``options.target``, ``ResourceLimit`` if the
    model does not fit in ``options.memory_limit``, ``BadInput`` for a rule in ``options.rules`` that is false, or
    that ``options.math`` does not permit, ``Unsupported`` for a graph that has to be cut first (``passes.parts``).
    """
    return compile_taken(Handed(graph), options, services)


def compile_taken(graph: Handed[Graph], options: Options, services: Services = ALONE) -> Compiled:
    """The same for a graph that the caller hands over, so that its weights are freed when the model has them packed.

    That needs ``services.again``, which makes them once more if somebody asks for them.
    """
    if is_cut(graph.value):
        raise Unsupported("shapes in the model depend on data: tilewright.compile makes such a model, in stages")
    prepared = Handed(prepare(graph.take(), services.watch, options.math))
    if options.superopt is Superopt.OFF and not options.rules:
        return compile_handed(prepared, options, services)
    found = _rewritten(prepared.take(), options, replace(services, again=None))
    return found if services.again is None else found.without_numbers(services.again)


def _rewritten(prepared: Graph, options: Options, services: Services) -> Compiled:
    """The model compiled after a search, or with rules of a user. Only this loads the super-optimizer."""
    from tilewright.superoptimizer import compile_by_rules, superoptimize

    if options.superopt is Superopt.OFF:
        return compile_by_rules(prepared, options, services)
    return superoptimize(prepared, options, services).compiled
