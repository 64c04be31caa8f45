"""Times each step of ``docs/te.md`` on this machine: ``python -m examples.te_matmul [--threads 1] [--size 960]``."""

import argparse
import re
from pathlib import Path

from tilewright import te
from tilewright.insight.peak import measure_peak
from tilewright.target.target import Target

PAGE = Path(__file__).parents[1] / "docs" / "te.md"
LAST = "Without a schedule"


def schedules(size: int) -> dict[str, te.TeSchedule]:
    """The schedule that each section of the page leaves, by its title."""
    names: dict[str, object] = {}
    found: dict[str, te.TeSchedule] = {}
    for section in PAGE.read_text().split("\n## ")[1:]:
        title, _, text = section.partition("\n")
        for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
            exec(code.replace("N = 960", f"N = {size}"), names)
        schedule = names.get("auto", names.get("s"))
        if isinstance(schedule, te.TeSchedule):
            found[title] = schedule.copy()
        if title == LAST:
            break
    return found


def main(arguments: list[str] | None = None) -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--size", type=int, default=960, help="rows and columns of the matrices")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args(arguments)
    peak = measure_peak(Target.host(), options.threads).gflops
    print("| step | ms | GFLOP/s | of the peak |\n|---|---|---|---|")
    for title, schedule in schedules(options.size).items():
        kernel = te.build(schedule, threads=options.threads)
        seconds = kernel.time(repeats=options.repeats)
        gflops = 2e-9 * options.size**3 / seconds
        print(f"| {title} | {seconds * 1e3:.3g} | {gflops:.3g} | {gflops / peak:.0%} |", flush=True)


if __name__ == "__main__":
    main()
