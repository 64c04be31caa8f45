from collections.abc import Callable, Iterable, Mapping
from os import PathLike

from torch import Tensor, nn
from torch.export.graph_signature import ExportGraphSignature
from torch.fx import Graph

class Dim:
    DYNAMIC: object

class ExportedProgram:
    def run_decompositions(self, decomp_table: Mapping[object, Callable[..., Tensor]]) -> ExportedProgram: ...
    @property
    def graph(self) -> Graph: ...
    @property
    def graph_signature(self) -> ExportGraphSignature: ...
    def named_parameters(self) -> Iterable[tuple[str, Tensor]]: ...
    def named_buffers(self) -> Iterable[tuple[str, Tensor]]: ...

def load(f: str | PathLike[str]) -> ExportedProgram: ...
def export(
    mod: nn.Module,
    args: tuple[object, ...],
    kwargs: Mapping[str, object] | None = None,
    *,
    dynamic_shapes: object = None,
    strict: bool = False,
) -> ExportedProgram: ...
