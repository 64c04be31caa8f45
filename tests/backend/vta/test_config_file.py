"""Configurations as files: what is written is read; what is none is refused, with the field."""

from dataclasses import replace
from pathlib import Path

import pytest

from tilewright.backend.vta.config import LARGE, TINY, VTA
from tilewright.backend.vta.config_file import Design, read_config, write_config
from tilewright.backend.vta.cycles import Timing
from tilewright.base.errors import BadInput


@pytest.mark.parametrize("design", [Design(VTA), Design(replace(LARGE, clock_mhz=333), 16), Design(TINY, 4)])
def test_a_file_keeps_all_of_a_design(design: Design, tmp_path: Path) -> None:
    write_config(tmp_path / "own.json", design)
    assert read_config(tmp_path / "own.json") == design


def test_what_is_left_out_has_its_default(tmp_path: Path) -> None:
    (tmp_path / "small.json").write_text('{"block_in": 8, "block_out": 8}')
    assert read_config(tmp_path / "small.json") == Design(replace(VTA, name="small", block_in=8, block_out=8))


def test_instructions_take_as_many_cycles_as_they_have_words() -> None:
    assert Design(VTA).timing == Timing()
    assert Design(VTA, 4).timing == Timing(bus_bytes=4, fetch_interval=4)
    assert Design(VTA, 64).timing.fetch_interval == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "is no configuration of an accelerator: it is no JSON object"),
        ("{", "is no configuration of an accelerator: it is no JSON object"),
        ('{"blocks": 3}', "blocks is no field of a configuration; known are acc_bits"),
        ('{"batch": 1.5}', "expected a whole number, found 1.5"),
        ('{"name": 7}', "expected a text, found int"),
        ('{"batch": 3}', "batch=3 is not a power of two"),
        ('{"bus_bytes": 0}', "bus_bytes=0 is impossible"),
    ],
)
def test_what_is_no_configuration(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(BadInput, match=said) as caught:
        read_config(tmp_path / "bad.json")
    assert str(tmp_path / "bad.json") in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"none\.json can't be read: No such file"):
        read_config(tmp_path / "none.json")
