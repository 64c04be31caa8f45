"""All benchmarks of models, and the page that shows them: `python -m benchmarks`. Hours; wants a quiet machine.

Options (--threads, --seconds, --peers, --build-limit, --lock) go to networks and operators alike. The zoo is written
first, where it is missing, and last come tables and pictures of docs/performance.md and docs/appendix.
"""

import subprocess
import sys

from . import document, networks, operators


def main() -> None:
    """Write the zoo, measure, write the page."""
    zoo = [sys.executable, "-m", "benchmarks.zoo", "--folder", str(networks.ZOO)]
    subprocess.run(zoo, check=True)  # in a process of its own: this one needs no torch in memory
    subprocess.run([sys.executable, "-m", "benchmarks.zoo.quantized", "--folder", str(networks.ZOO)], check=True)
    networks.main(sys.argv[1:])
    networks.main(["--precision", "bf16", "--latency-only", *sys.argv[1:]])
    networks.main(["--precision", "int8", "--latency-only", *sys.argv[1:]])
    operators.main(sys.argv[1:])
    document.main()


if __name__ == "__main__":
    main()
