"""Write tables and pictures of stored results into docs: `python -m benchmarks.document`.

The page has the pictures, and the times of networks; an appendix for each benchmark has the other tables.
"""

from pathlib import Path

from . import export_tables, exports, networks, operators
from .pictures import dot_plot
from .results import Results, load, versions
from .tables import details, heading, latencies, splice

ROOT = Path(__file__).parent.parent
DOCUMENT = ROOT / "docs" / "performance.md"
APPENDICES = DOCUMENT.with_name("appendix")
EXPORTED_BY = ("onnx", "onnxruntime", "torch", "torchvision", "timm", "transformers")
BENCHMARKS = {"networks": (networks.RESULTS, "Networks, batch 1"), "operators": (operators.RESULTS, "Operators")}
NARROW = {"bfloat16": networks.BFLOAT16_RESULTS, "int8": networks.INT8_RESULTS}


def main() -> None:
    """Renew what there are results for."""
    for name, (path, title) in BENCHMARKS.items():
        if path.exists():
            renew(DOCUMENT, APPENDICES / f"{name}.md", name, title, load(path))
    for name, path in NARROW.items():
        if path.exists():
            renew_narrow(DOCUMENT, APPENDICES / "networks.md", name, load(path))
    if exports.RESULTS.exists():
        renew_exports(APPENDICES / "exports.md")


def renew(document: Path, appendix: Path, name: str, title: str, results: Results) -> None:
    """Write the pictures beside `document`, and put pictures and tables between the markers of `name` in both pages.

    The times of operators, a hundred rows, are in the appendix. Raises ValueError when there are no such markers.
    """
    links: list[str] = []
    for threads in sorted({row.threads for row in results.rows}):
        caption = f"{title}, {threads} {'thread' if threads == 1 else 'threads'}: time, as multiples of ONNX Runtime's"
        picture = document.with_name(f"{name}-{threads}.svg")
        picture.write_text(dot_plot(results, threads, caption))
        links.append(f"![{caption}]({picture.name})")
    times = latencies(results)
    shown, left = (times, []) if name == "networks" else ([], times)
    for page, parts in ((document, [*links, heading(results), *shown]), (appendix, [*left, *details(results)])):
        page.write_text(splice(page.read_text(), name, "\n\n".join(parts)))


def renew_narrow(document: Path, appendix: Path, name: str, results: Results) -> None:
    """Put the times of networks in narrow numbers between the markers of `name` in `document`, and their errors into
    `appendix`."""
    for page, parts in ((document, [heading(results), *latencies(results)]), (appendix, details(results))):
        page.write_text(splice(page.read_text(), name, "\n\n".join(parts)))


def renew_exports(appendix: Path) -> None:
    """Put what came of exported networks into `appendix`, with the versions that are installed."""
    parts = [f"{versions(EXPORTED_BY)}.", export_tables.report(exports.stored(exports.RESULTS))]
    appendix.write_text(splice(appendix.read_text(), "exports", "\n\n".join(parts)))


if __name__ == "__main__":
    main()
