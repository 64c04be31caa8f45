"""Pictures and the page they stand on."""

import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.document import APPENDICES, DOCUMENT, renew, renew_narrow
from benchmarks.pictures import COLORS, dot_plot
from benchmarks.results import Results, Row
from benchmarks.tables import LABELS, splice

SVG = "{http://www.w3.org/2000/svg}"
MEDIANS = {"onnxruntime": 1.0, "openvino": 2.0, "tilewright": 0.5, "torch_eager": 1000.0}
RESULTS = Results(
    "some machine", "", tuple(Row("a & b", 1, peer, "", (m, m), m) for peer, m in MEDIANS.items())
).with_rows([Row("broken", 1, "onnxruntime", "fails"), Row("broken", 1, "tilewright", "", (1.0, 1.0), 1.0)])


def dots(picture: str) -> dict[str, list[float]]:
    """How far to the right the dots of each peer stand."""
    groups = {group.get("id", ""): group for group in ElementTree.fromstring(picture).iter(f"{SVG}g")}
    return {peer: [float(dot.attrib["x"]) for dot in groups[peer].iter(f"{SVG}use")] for peer in MEDIANS}


def test_dots_stand_at_their_ratios() -> None:
    picture = dot_plot(RESULTS, 1, "Title <1>")
    places = dots(picture)
    assert all(len(of_peer) == 1 for of_peer in places.values()), "no dot where the baseline failed"
    x = {peer: place for peer, (place,) in places.items()}
    assert x["openvino"] - x["onnxruntime"] == pytest.approx(x["onnxruntime"] - x["tilewright"], abs=0.2)
    assert x["torch_eager"] - x["onnxruntime"] == pytest.approx(5 * (x["openvino"] - x["onnxruntime"]), abs=0.5)


def test_words_are_escaped_and_every_peer_has_a_color() -> None:
    picture = dot_plot(RESULTS, 1, "Title <1>")
    texts = [text.text for text in ElementTree.fromstring(picture).iter(f"{SVG}text")]
    assert "Title <1>" in texts
    assert {"a & b", "broken", "ONNX Runtime", "1/2", "32"} <= set(texts)
    assert COLORS.keys() == LABELS.keys()


def test_the_page_is_renewed_between_its_markers(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("words\n<!-- begin networks -->\n<!-- end networks -->\nmore\n")
    details = tmp_path / "details.md"
    details.write_text(page.read_text())
    renew(page, details, "networks", "Networks", RESULTS)
    once = page.read_text(), details.read_text()
    links = re.findall(r"!\[(.*?)\]\((.*?)\)", once[0])
    assert links == [("Networks, 1 thread: time, as multiples of ONNX Runtime's", "networks-1.svg")]
    assert (tmp_path / "networks-1.svg").read_text() == dot_plot(RESULTS, 1, links[0][0])
    assert "| a &" in once[0]
    assert "Error against float64" in once[1]
    renew(page, details, "networks", "Networks", RESULTS)
    assert (page.read_text(), details.read_text()) == once


def test_times_in_bfloat16_are_on_the_page_and_errors_beside_it(tmp_path: Path) -> None:
    pages = [tmp_path / "page.md", tmp_path / "details.md"]
    for page in pages:
        page.write_text("words\n<!-- begin bfloat16 -->\n<!-- end bfloat16 -->\nmore\n")
    rows = [replace(row, peer=f"{row.peer}_bf16") for row in RESULTS.rows if row.peer in ("openvino", "tilewright")]
    renew_narrow(*pages, "bfloat16", replace(RESULTS, rows=tuple(rows)))
    times, errors = (page.read_text() for page in pages)
    assert "ratio to OpenVINO, bfloat16" in times
    assert "fastest other / Tilewright, bfloat16" in times
    assert "Error against float64" in errors


@pytest.mark.parametrize("name", ["networks", "operators"])
def test_the_performance_page_has_the_markers(name: str) -> None:
    for page in (DOCUMENT, APPENDICES / f"{name}.md"):
        text = splice(splice(page.read_text(), name, "x"), name, "y")
        assert text.count(f"<!-- begin {name} -->\ny\n<!-- end {name} -->") == 1
