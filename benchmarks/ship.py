"""Makes the records that come with the package for this kind of processor: `python -m benchmarks.ship`.

Tunes networks one after the other into one database, as `tilewright tune` does, and writes what `compile` may use of it
into the package. Wants a quiet machine, for as many minutes as it is told for each network and number of threads.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from tilewright.cli import main as tilewright
from tilewright.measure.records import Record, Records
from tilewright.target.target import Target
from tilewright.tune.recorded import COMPARING, CONFIRMING
from tilewright.tune.shipped import write

from .networks import NETWORKS, ZOO
from .options import names, numbers


def usable(records: Records, target: Target, threads: Sequence[int]) -> list[Record]:
    """The best record of each program for each number of threads, and what decides about ways."""
    found: list[Record] = []
    for count in threads:
        for seed in (CONFIRMING, COMPARING):
            for program in records.programs(str(target), count, seed=seed):
                found += records.best(program, str(target), count, seed=seed)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Tune, and write the file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ship", description="Makes the package's records.")
    parser.add_argument("--networks", type=names, default=list(NETWORKS), help="default: all of the zoo")
    parser.add_argument("--zoo", type=Path, default=ZOO, help="folder of the zoo, default %(default)s")
    parser.add_argument("--minutes", type=float, default=5.0, help="for each, default %(default)s")
    parser.add_argument("--threads", type=numbers, default=[1, 2], help="numbers of threads, default 1,2")
    parser.add_argument("--records", type=Path, default=Path("ship.db"), help="database, default %(default)s")
    options = parser.parse_args(arguments)
    for network in options.networks:
        for count in options.threads:
            model, database = str(options.zoo / f"{network}.onnx"), str(options.records)
            own = ["--records", database, "--threads", str(count), "--minutes", str(options.minutes), "--quiet"]
            tilewright(["tune", model, *own])
    target = Target.host()
    with Records.open(options.records) as records:
        found = usable(records, target, options.threads)
    print(f"{len(found)} records in {write(found, target)}")


if __name__ == "__main__":
    main()
