"""Faults can be planted: each text to replace is there once. That tests notice them is what ``run.py`` finds out."""

from collections import Counter
from pathlib import Path

import tilewright
from tests.mutants.mutants import MUTANTS

SOURCES = Path(tilewright.__file__).parent
ROOT = Path(__file__).resolve().parents[2]


def test_each_text_to_replace_is_there_once() -> None:
    counts = {
        mutant.name: (SOURCES / mutant.file).read_text().count(mutant.before) for mutant in MUTANTS if mutant.before
    }
    assert not {name: count for name, count in counts.items() if count != 1}


def test_each_fault_has_a_name_of_its_own() -> None:
    names = Counter(mutant.name for mutant in MUTANTS)
    assert not [name for name, count in names.items() if count > 1]


def test_the_tests_that_must_notice_are_there() -> None:
    files = {test.split("::")[0] for mutant in MUTANTS for test in mutant.tests if test.startswith("tests/")}
    assert files
    assert not [file for file in sorted(files) if not (ROOT / file).exists()]
