from torch import Tensor

class Function:
    @classmethod
    def apply(cls, *args: object) -> Tensor | tuple[Tensor, ...]: ...
