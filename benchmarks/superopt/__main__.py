"""The super-optimizer's gains and costs: `python -m benchmarks.superopt networks|costs`, each with `--help`."""

import argparse
from collections.abc import Sequence

from . import costs, networks


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a verb."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.superopt", description="Gains and costs of searches.")
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    quiet = "Measure on a quiet machine."
    networks.add_arguments(verbs.add_parser("networks", help="gains of networks", description=quiet))
    costs.add_arguments(verbs.add_parser("costs", help="whole costs beside measured times", description=quiet))
    given = parser.parse_args(arguments)
    given.run(given)


if __name__ == "__main__":
    main()
