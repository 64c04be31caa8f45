"""Write the zoo: `python -m benchmarks.zoo [--folder build/zoo] [--batch 1] [NAME ...]`. Files that exist are kept."""

import argparse
import sys
import time
from pathlib import Path

from .catalogue import NETWORKS
from .export import export


def main() -> int:
    """Write all networks that were asked for; the exit status is 1 when one could not be written."""
    options = _options()
    options.folder.mkdir(parents=True, exist_ok=True)
    failed = [name for name in options.names or NETWORKS if not _write(name, options)]
    return 1 if failed else 0


def _write(name: str, options: argparse.Namespace) -> bool:
    if (options.folder / f"{name}.npz").exists() and not options.force:
        print(f"{name}: exists")
        return True
    begin = time.perf_counter()
    try:
        export(name, options.folder, options.batch)
    except (KeyError, ValueError, RuntimeError) as error:  # torch's exporter raises RuntimeError
        print(f"{name}: FAILED, {type(error).__name__}: {error}", flush=True)
        return False
    print(f"{name}: written in {time.perf_counter() - begin:.0f} s", flush=True)
    return True


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.zoo", description="Write the zoo as ONNX files.")
    parser.add_argument("--folder", type=Path, default=Path("build/zoo"), help="where to, default %(default)s")
    parser.add_argument("--batch", type=int, default=1, help="of all networks in the folder, default %(default)s")
    parser.add_argument("--force", action="store_true", help="write anew what exists")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default all: {', '.join(NETWORKS)}")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
