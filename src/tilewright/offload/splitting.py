"""Splits a model, and makes the compiled model of the parts: for an accelerator, or for a library.

``api`` loads this module, and with it all of the folder, only for a model that is split.
"""

from dataclasses import dataclass

from tilewright.base.errors import BadInput
from tilewright.compilation import Options, Services
from tilewright.graph import Graph
from tilewright.offload.accelerator import Accelerator
from tilewright.offload.library.choice import LibraryChoice
from tilewright.offload.library.model import LibraryModel
from tilewright.offload.library.placing import LibraryPlacing, Placing
from tilewright.offload.model import AcceleratedModel
from tilewright.offload.partition import Offloading, Split
from tilewright.staged import StagedModel, Whole


@dataclass(frozen=True, slots=True)
class Splitting:
    """What splits the graphs of a model, and knows its splits again."""

    by: Offloading | LibraryPlacing

    @staticmethod
    def asked(accelerator: Accelerator | None, library: LibraryChoice | str | None, options: Options) -> "Splitting":
        """What ``compile`` was asked for. Raises ``BadInput`` for both, and as ``LibraryPlacing.asked``."""
        match accelerator, library:
            case Accelerator(), None:
                return Splitting(Offloading(accelerator))
            case None, LibraryChoice() | str():
                return Splitting(LibraryPlacing.asked(library, options))
            case _:
                raise BadInput("accelerator= and library= both split the model: leave one out")

    def split(self, graph: Graph, options: Options, services: Services) -> Graph:
        """An imported graph, with a node for each part that is computed elsewhere. Raises ``Unsupported``."""
        return self.by.split(graph, options, services).graph

    def model(self, whole: Whole) -> StagedModel:
        """The model of compiled parts; a plain one in stages if this did not make its graph."""
        match found := self.by.of(whole.graph):
            case Split():
                return AcceleratedModel(whole, found)
            case Placing():
                return LibraryModel(whole, found)
            case None:
                return StagedModel(whole)
