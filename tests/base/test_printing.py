"""What is printed of a compilation: the stages that were asked for, to standard error or to files."""

from pathlib import Path

import pytest

from tilewright.base.errors import BadInput
from tilewright.base.printing import printer
from tilewright.base.settings import Settings, Stage

ALL = Settings(print_stages=frozenset(Stage))


def test_the_chosen_stages_only() -> None:
    written: list[str] = []
    show = printer(Settings(print_stages=frozenset({Stage.GRAPH, Stage.FUSE, Stage.LLVM})), written.append)
    show(Stage.GRAPH, "a = b")
    show(Stage.LOOPS, "for i")
    show(Stage.FUSE, ("g0", "g1"))
    show(Stage.LLVM, {"k0": "ret", "k1": "br"})
    assert written == ["---- graph\na = b\n", "---- fuse\ng0\n\ng1\n", "---- llvm\nret\n\nbr\n"]
    printer(Settings(), written.append)(Stage.GRAPH, "a = b")
    assert len(written) == 3


def test_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    printer(ALL)(Stage.MAIN, "x")
    assert capsys.readouterr() == ("", "---- main\nx\n")


def test_a_graph_that_did_not_change_is_one_line() -> None:
    written: list[str] = []
    show = printer(ALL, written.append)
    for stage, text in [
        (Stage.GRAPH, "a"),
        (Stage.NORMALIZE, "a"),
        (Stage.RECOGNIZE, "b"),
        (Stage.CHOOSE, "a"),
        (Stage.LAYOUT, "b"),
        (Stage.FLATTEN, "a"),
        (Stage.MAIN, "a"),
    ]:
        show(stage, text)
    texts = [text.splitlines()[1] for text in written]
    assert texts == ["a", "(unchanged)", "b", "a", "(unchanged)", "a", "a"]


def test_what_was_not_printed_is_not_compared_with() -> None:
    written: list[str] = []
    show = printer(Settings(print_stages=frozenset({Stage.NORMALIZE})), written.append)
    show(Stage.GRAPH, "a")
    show(Stage.NORMALIZE, "a")
    assert written == ["---- normalize\na\n"]


def test_a_file_for_each_stage_and_each_kernel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "new" / "stages"
    settings = Settings(print_stages=frozenset(Stage) - {Stage.MAIN}, print_folder=folder)
    for graph in ("a", "é\ud800"):
        show = printer(settings)
        show(Stage.GRAPH, graph)
        show(Stage.NORMALIZE, graph)
        show(Stage.MAIN, "left out")
        show(Stage.LLVM, {"k0": "ret\n", "k1_" + 300 * "x": "br"})
    files = {str(path.relative_to(folder)): path.read_text("utf-8") for path in folder.rglob("*.txt")}
    kernels = {"03-llvm/k0.txt": "ret\n", f"03-llvm/k1_{197 * 'x'}.txt": "br\n"}
    first = {"01-graph.txt": "a\n", "02-normalize.txt": "a\n", **kernels}
    second = {"01-graph.txt": "é\\ud800\n", "02-normalize.txt": "é\\ud800\n", **kernels}
    assert files == {f"{n}/{name}": text for n, made in ((1, first), (2, second)) for name, text in made.items()}
    assert capsys.readouterr() == ("", "")


def test_no_folder_is_made_if_nothing_is_shown(tmp_path: Path) -> None:
    printer(Settings(print_folder=tmp_path / "stages"))(Stage.GRAPH, "a")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    show = printer(Settings(print_stages=frozenset(Stage), print_folder=tmp_path / "file"))
    with pytest.raises(BadInput, match="give another TILEWRIGHT_PRINT_FOLDER"):
        show(Stage.GRAPH, "a")
