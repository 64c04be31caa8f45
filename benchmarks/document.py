"""Write tables and pictures of stored results into docs/performance.md: `python -m benchmarks.document`."""

from pathlib import Path

from . import networks, operators
from .pictures import dot_plot
from .results import Results, load
from .tables import report, splice

ROOT = Path(__file__).parent.parent
DOCUMENT = ROOT / "docs" / "performance.md"
BENCHMARKS = {"networks": (networks.RESULTS, "Networks, batch 1"), "operators": (operators.RESULTS, "Operators")}


def main() -> None:
    """Renew what there are results for."""
    for name, (path, title) in BENCHMARKS.items():
        if path.exists():
            renew(DOCUMENT, name, title, load(path))


def renew(document: Path, name: str, title: str, results: Results) -> None:
    """Write the pictures beside `document` and put tables and pictures between its markers of `name`.

    Raises ValueError when there are no such markers.
    """
    links: list[str] = []
    for threads in sorted({row.threads for row in results.rows}):
        caption = f"{title}, {threads} {'thread' if threads == 1 else 'threads'}: time, as multiples of ONNX Runtime's"
        picture = document.with_name(f"{name}-{threads}.svg")
        picture.write_text(dot_plot(results, threads, caption))
        links.append(f"![{caption}]({picture.name})")
    document.write_text(splice(document.read_text(), name, "\n\n".join([*links, report(results)])))


if __name__ == "__main__":
    main()
