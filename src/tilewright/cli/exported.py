"""Programs of PyTorch in files, as models of the command line."""

from pathlib import Path

from tilewright.base.errors import BadInput, InvalidModel, UntrustedData

SUFFIX = ".pt2"
"""Of files that ``torch.export.save`` writes."""


def program_of(path: Path, *, trusted: bool) -> object:
    """The program in a file of ``torch.export.save``; any other path as it is.

    Raises ``UntrustedData`` unless ``trusted``, as reading such a file may run code in it; ``BadInput`` if torch is not
    installed, ``InvalidModel`` if the file can't be read.
    """
    if path.suffix != SUFFIX:
        return path
    if not trusted:
        raise UntrustedData(
            f"{path}: PyTorch reads such files by pickle, which can run code that is in them; if you trust "
            "where it comes from, add --trust"
        )
    try:
        from torch.export import load
    except ImportError as error:
        raise BadInput("torch is not installed: pip install 'tilewright[torch]'") from error
    try:
        return load(path)
    except Exception as error:  # whatever is in the file
        raise InvalidModel(f"{path} can't be read by torch.export.load: {type(error).__name__}: {error}") from error
