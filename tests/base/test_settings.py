"""Settings: every variable, its default, and what is said about a value that can't be read."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.base.errors import BadInput
from tilewright.base.settings import Settings, Stage

HOME = {"HOME": "/home/ada"}


def read(**variables: str) -> Settings:
    return Settings.from_environment({**HOME, **{f"TILEWRIGHT_{name}": value for name, value in variables.items()}})


def test_defaults() -> None:
    cache = Path("/home/ada/.cache/tilewright/kernels")
    keys = Path("/home/ada/.local/share/tilewright")
    assert read() == Settings(
        print_stages=frozenset(),
        print_folder=None,
        num_threads=None,
        cache_dir=cache,
        cache_bytes=1 << 30,
        model_cache_bytes=4 << 30,
        key_dir=keys,
        records=keys / "records.db",
        machine=keys / "machine.json",
        repro_dir=cache.parent / "repro",
        repro_bytes=1 << 30,
        bounds_check=False,
        model_bytes=None,
    )


def test_an_empty_variable_is_unset() -> None:
    assert (
        read(PRINT="", NUM_THREADS=" ", CACHE_DIR="", CACHE_BYTES="", KEY_DIR="", RECORDS="", BOUNDS_CHECK="") == read()
    )


def test_other_variables_do_not_matter() -> None:
    assert Settings.from_environment({**HOME, "OMP_NUM_THREADS": "x", "MY_TILEWRIGHT_PRINT": "?"}) == read()


def test_all_variables() -> None:
    folders = {"CACHE_DIR": "/x/y", "KEY_DIR": "/z", "RECORDS": "/r.db", "MACHINE": "/m.json", "REPRO_DIR": "/f"}
    read_back = read(
        PRINT=" graph, LLVM ,",
        PRINT_FOLDER="/p",
        NUM_THREADS="4",
        CACHE_BYTES="512M",
        MODEL_CACHE_BYTES="8G",
        MODEL_BYTES="3M",
        REPRO_BYTES="4G",
        BOUNDS_CHECK="yes",
        **folders,
    )
    stages = frozenset({Stage.GRAPH, Stage.LLVM})
    assert read_back == Settings(
        print_stages=stages,
        print_folder=Path("/p"),
        num_threads=4,
        cache_dir=Path("/x/y"),
        cache_bytes=512 << 20,
        model_cache_bytes=8 << 30,
        key_dir=Path("/z"),
        records=Path("/r.db"),
        machine=Path("/m.json"),
        repro_dir=Path("/f"),
        repro_bytes=4 << 30,
        bounds_check=True,
        model_bytes=3 << 20,
    )
    assert read(PRINT="all").print_stages == frozenset(Stage)
    assert read(PRINT_FOLDER="~/p").print_stages == frozenset(Stage)
    assert read(PRINT_FOLDER="~/p").print_folder == Path("/home/ada/p")
    assert read(CACHE_BYTES="0").cache_bytes == 0
    assert read(RECORDS="off").records is None
    assert read(MACHINE="OFF").machine is None
    assert read(REPRO_DIR="off").repro_dir is None


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"HOME": "/h", "XDG_CACHE_HOME": "/xdg"}, Path("/xdg/tilewright/kernels")),
        ({"HOME": "/h", "XDG_CACHE_HOME": "relative"}, Path("/h/.cache/tilewright/kernels")),
        ({}, None),
        ({"HOME": "/h", "TILEWRIGHT_CACHE_DIR": "off"}, None),
        ({"HOME": "/h", "TILEWRIGHT_CACHE_DIR": "~/kernels"}, Path("/h/kernels")),
    ],
)
def test_where_the_cache_is(environ: dict[str, str], folder: Path | None) -> None:
    assert Settings.from_environment(environ).cache_dir == folder


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"HOME": "/h", "XDG_DATA_HOME": "/xdg"}, Path("/xdg/tilewright")),
        ({"HOME": "/h", "XDG_DATA_HOME": "relative"}, Path("/h/.local/share/tilewright")),
        ({}, None),
        ({"HOME": "/h", "TILEWRIGHT_KEY_DIR": "~/keys"}, Path("/h/keys")),
    ],
)
def test_where_the_key_is(environ: dict[str, str], folder: Path | None) -> None:
    assert Settings.from_environment(environ).key_dir == folder


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("PRINT", "graph,lops", "'lops' is no stage; give some of graph, "),
        ("PRINT_FOLDER", "here", "give an absolute path, or unset it"),
        ("PRINT_FOLDER", "off", "give an absolute path, or unset it"),
        ("NUM_THREADS", "0", "whole number from 1"),
        ("NUM_THREADS", "-2", "whole number from 1"),
        ("NUM_THREADS", "many", "whole number from 1"),
        ("NUM_THREADS", "²", "whole number from 1"),
        ("CACHE_DIR", "here", "absolute path, or off"),
        ("KEY_DIR", "off", "give an absolute path, or unset it"),
        ("RECORDS", "here", "give an absolute path, or off"),
        ("MACHINE", "here", "give an absolute path, or off"),
        ("CACHE_BYTES", "-1", "such as 1073741824 or 512M"),
        ("CACHE_BYTES", "big", "such as 1073741824 or 512M"),
        ("BOUNDS_CHECK", "maybe", "give 1 or 0"),
    ],
)
def test_bad_values_name_the_variable_and_the_remedy(name: str, value: str, remedy: str) -> None:
    with pytest.raises(BadInput) as caught:
        read(**{name: value})
    assert f"TILEWRIGHT_{name}={value!r}" in str(caught.value)
    assert remedy in str(caught.value)


def test_an_unknown_variable_is_refused_with_the_nearest() -> None:
    with pytest.raises(BadInput, match=r"no setting TILEWRIGHT_NUM_THREAD; there is TILEWRIGHT_NUM_THREADS$"):
        read(NUM_THREAD="4")


@given(
    st.sampled_from(["PRINT", "NUM_THREADS", "CACHE_DIR", "CACHE_BYTES", "KEY_DIR", "MACHINE", "BOUNDS_CHECK"]),
    st.text(max_size=20),
)
def test_any_text_gives_settings_or_a_clear_error(name: str, value: str) -> None:
    try:
        read(**{name: value})
    except BadInput as error:
        assert f"TILEWRIGHT_{name}" in str(error)
