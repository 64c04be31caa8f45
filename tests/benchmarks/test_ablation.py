"""The ablation: tables are parts of the template's space, and searches are replayed in them."""

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from benchmarks.ablation.__main__ import picture, replayed, trials_to
from benchmarks.ablation.box import Box
from benchmarks.ablation.features import seen
from benchmarks.ablation.layers import LAYERS, space_of
from benchmarks.ablation.record import chosen
from benchmarks.ablation.replay import SETUP, Baseline, Learned, View, Way, curve, transferred, trees
from benchmarks.ablation.table import Table, TableSpace
from tilewright.target.target import Target
from tilewright.tune.models.model import Objective

RADICES = (9, 8, 5, 3)
RANK = Learned(trees(Objective.RANK))


def made_up(seed: int = 0) -> Table:
    """Times by a formula over the knobs; two of three candidates are in the table."""
    random = np.random.default_rng(seed)
    digits = np.array(list(product(*map(range, RADICES))))
    digits = digits[random.random(len(digits)) < 2 / 3]
    a, b, c, d = digits.T
    microseconds = 10.0 + (a - 5) ** 2 * (1 + abs(b - 3)) + 3 * abs(c - 2) + 2.0 * d * (a > 4)
    contexts = np.stack([digits, digits**2], axis=2).astype(np.float64)
    return Table(RADICES, digits, microseconds, contexts, digits.astype(np.float64))


@pytest.mark.parametrize("way", [Baseline.RANDOM, Baseline.GENETIC, RANK], ids=["random", "genetic", "trees"])
def test_a_search_finds_the_best_of_a_table_in_the_end(way: Way) -> None:
    table = made_up()
    found = curve(table, way, len(table.digits), seed=3)
    assert found[-1] == 1.0
    assert (np.diff(found) <= 0).all()
    assert (curve(table, way, 100, seed=3) == found[:100]).all()


def test_a_learned_search_needs_fewer_trials() -> None:
    ways: dict[str, Way] = {"random": Baseline.RANDOM, "trees": RANK}
    results = replayed(made_up(), ways, trials=400, seeds=3)
    assert trials_to(results["trees"], 1.02) < trials_to(results["random"], 1.02)
    drawn = picture({"C1": results})
    assert all(f">{way}<" in drawn for way in results)


def test_what_other_tables_teach_helps_in_the_first_batch() -> None:
    others = [made_up(seed) for seed in (1, 2)]
    with_others = curve(made_up(), Learned(transferred(others), View.CURVES), SETUP.first, seed=0)
    alone = curve(made_up(), Learned(trees(Objective.RANK), View.CURVES), SETUP.first, seed=0)
    assert with_others[-1] < alone[-1]


def test_tables_are_read_back(tmp_path: Path) -> None:
    table = made_up()
    table.save(tmp_path / "t.npz")
    found = Table.load(tmp_path / "t.npz")
    assert found.radices == table.radices
    for name in ("digits", "microseconds", "contexts", "curves"):
        np.testing.assert_allclose(getattr(found, name), getattr(table, name), rtol=1e-3)
    space = TableSpace(found)
    assert (space.rows(table.digits) == np.arange(len(table.digits))).all()
    assert space.allowed(np.array(list(product(*map(range, RADICES))))).sum() == len(table.digits)


def test_a_box_is_a_part_of_the_space_and_its_candidates_have_features() -> None:
    space = space_of(replace(LAYERS["C12"], inputs=32, outputs=32), Target.host())
    box = Box.of(space, 200)
    assert 100 <= np.prod(box.radices) <= 200
    assert sorted(knob for group in box.groups for knob in group) == list(range(len(space.radices)))
    for knobs, values in zip(box.groups, box.values, strict=True):
        radices = [space.radices[knob] for knob in knobs]
        assert ((values >= 0) & (values < radices)).all()
        assert len(set(map(tuple, values.tolist()))) == len(values)
    digits = chosen(box, 10)
    scheduled = [box.schedule(candidate).program for candidate in digits]
    assert (digits[0] == box.analytic()).all()
    assert len(digits) == len(set(map(str, scheduled))) == 10
    found = [seen(program) for program in scheduled]
    assert len({one.curves.shape for one in found}) == 1
    assert len({one.contexts.shape[1] for one in found}) == 1
