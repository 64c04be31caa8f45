"""Profiles: every field follows from times and counts that are known."""

import json
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from math import prod

import numpy as np
import pytest
from rich.console import Console

from tests.frontend.models import single_node
from tests.insight.models import FEEDS, classifier, compiled
from tilewright.base.errors import BadFeed
from tilewright.insight.peak import Bandwidth, Peak, Roof
from tilewright.insight.profile import WIDE, KernelProfile, Profile, profile

PEAK = Peak(1, 100.0, (Bandwidth(Roof.MEMORY, 1 << 40, 10.0),))


def test_a_model_by_kernel() -> None:
    _, made = compiled(classifier())
    found = profile(made.executable, FEEDS, made, lambda: PEAK, seconds=0)
    assert found.runs == 5
    assert found.threads == 1
    assert [row.kernel for row in found.kernels] == list(made.executable.manifest.calls)
    assert [row.nodes for row in found.kernels] == [
        ("node fc0 (Gemm)", "node act (Relu)"),
        ("node fc1 (Gemm)",),
        ("node soft (Softmax)",),
    ]
    assert sum(row.share for row in found.kernels) == pytest.approx(1)
    assert 0 < found.remainder < found.microseconds
    for row, kernel in zip(found.kernels, made.kernels, strict=True):
        assert row.microseconds > 0
        assert row.trace == str(kernel.schedule.trace)


def test_rates_follow_from_work_and_time() -> None:
    _, made = compiled(classifier())
    row = profile(made.executable, FEEDS, made, lambda: PEAK, seconds=0).kernels[1]
    seconds = row.microseconds * 1e-6
    operations = 2 * 4 * 8 * 8 + 4 * 8
    weights = made.executable.manifest.constants[0]  # packed in panels as wide as this machine likes, with padding
    size = 4 * (32 + 8 + 32) + 4 * prod(weights.static_shape or ())
    assert row.gflops == pytest.approx(operations / seconds / 1e9)
    assert row.gbytes_per_second == pytest.approx(size / seconds / 1e9)
    assert row.percent_of_peak == pytest.approx(100 * max(operations / 100e9, size / 10e9) / seconds)
    assert row.bound == "memory"


def test_without_the_compiler_there_are_times_only() -> None:
    _, made = compiled(classifier())
    found = profile(made.executable, FEEDS, seconds=0)
    assert all(row.gflops is row.bound is row.trace is None and row.nodes == () for row in found.kernels)
    assert all(row.microseconds > 0 for row in found.kernels)
    assert found.peak is None


def test_a_wrong_feed() -> None:
    _, made = compiled(classifier())
    with pytest.raises(BadFeed, match="x"):
        profile(made.executable, {"x": np.zeros((2, 2), np.float32)}, made)


def test_a_model_without_work() -> None:
    _, made = compiled(single_node("Relu", {"x": np.zeros((0, 3), np.float32)}))
    (row,) = profile(made.executable, {"x": np.zeros((0, 3), np.float32)}, made, lambda: PEAK, seconds=0).kernels
    assert row.gflops == 0


ROWS = (
    KernelProfile("k0_gemm", ("node a", "node [b]"), 3000.0, 0.6, 10.0, 1.0, 50.0, Roof.COMPUTE, trace="s.split()"),
    KernelProfile("k1_softmax", (), 1000.0, 0.2),
    KernelProfile("k0_gemm", ("node c",), 1000.0, 0.2, 30.0, 5.0, 90.0, Roof.MEMORY, trace="s.split()"),
)
EXAMPLE = Profile(7, 2, 5500.0, 500.0, ROWS, PEAK)


def test_calls_of_one_kernel_add_up() -> None:
    first, second = EXAMPLE.by_kernel().kernels
    assert (first.kernel, first.calls, first.microseconds, first.nodes) == (
        "k0_gemm",
        2,
        4000.0,
        ("node a", "node [b]", "node c"),
    )
    assert first.share == pytest.approx(0.8)
    assert (first.gflops, first.gbytes_per_second, first.percent_of_peak) == (15.0, 2.0, 60.0)
    assert second == ROWS[1]


def test_what_is_printed(golden: Callable[[str, str], None]) -> None:
    console = Console(width=120, record=True, file=StringIO())
    EXAMPLE.show(trace=True, console=console)
    EXAMPLE.by_kernel().show(console=console)
    replace(EXAMPLE, microseconds=7000.0, kernels=(replace(ROWS[0], gflops=None),), peak=None).show(console=console)
    golden("insight/profile", console.export_text())


def test_a_narrow_table_has_a_line_for_each_kernel() -> None:
    """Where there is no room for nodes, that is said."""
    console = Console(width=WIDE - 1, record=True, file=StringIO())
    EXAMPLE.show(console=console)
    printed = console.export_text()
    assert all(sum(row.kernel in line for line in printed.splitlines()) >= 1 for row in ROWS)
    assert "node a" not in printed
    assert f"with {WIDE} columns" in printed


def test_a_row_is_rated_by_the_cache_that_its_arguments_fit_in() -> None:
    _, made = compiled(classifier())
    caches = tuple(Bandwidth(roof, size, 1e-6) for roof, size in ((Roof.L1, 16), (Roof.L2, 1 << 20)))
    peak = Peak(1, 1e9, (*caches, Bandwidth(Roof.MEMORY, 1 << 40, 1e-9)))
    found = profile(made.executable, FEEDS, made, lambda: peak, seconds=0)
    assert [row.bound for row in found.kernels] == [Roof.L2, Roof.L2, Roof.L2]
    assert json.loads(json.dumps(found.to_json()))["kernels"][0]["bound"] == "L2"


def test_rows_above_their_roof_say_why() -> None:
    rows = (replace(ROWS[0], percent_of_peak=100.4), replace(ROWS[2], kernel="k2", percent_of_peak=130.0))
    console = Console(width=200, record=True, file=StringIO())
    replace(EXAMPLE, kernels=rows).show(console=console)
    printed = console.export_text()
    assert "above 100 %: k2 (memory): a bandwidth is that of reads; " in printed
    assert "k0_gemm (compute)" not in printed
    assert "measured roofs: compute: 100 GFLOP/s (float32); GB/s: 10 from memory" in printed


def test_json_has_all_fields() -> None:
    assert json.loads(json.dumps(EXAMPLE.to_json()))["kernels"][0]["percent_of_peak"] == 50.0
