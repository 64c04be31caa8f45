"""Packages that are installed for a test: a module, and metadata that name what is in it."""

from pathlib import Path

HERE = Path(__file__).parent


def install(folder: Path, group: str, name: str, value: str, source: Path | None = None) -> None:
    """A package in ``folder`` that offers ``name = value`` in the entry points of ``group``.

    ``value`` is ``module:object``; ``source``: the text of the module, which is written unless it is None.
    """
    module = value.partition(":")[0]
    if source is not None:
        (folder / f"{module}.py").write_text(source.read_text())
    metadata = folder / f"{module}_{name}-1.0.dist-info"
    metadata.mkdir()
    package = f"{module}-{name}".replace("_", "-")
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[{group}]\n{name} = {value}\n")
