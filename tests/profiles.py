"""How tests draw, and what of the machine they may see: a run must not depend on the day, the order or the host.

- ``tilewright``, the default: what a test draws follows from its own text, and nothing else.
- ``mutants``: the same without making failing examples small, which nobody reads.
- ``fresh``: other draws each night, from ``--hypothesis-seed``. ``tests/nightly.py`` keeps what it finds.
"""

import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, Phase, settings
from hypothesis.internal.conjecture.providers import HypothesisProvider
from hypothesis.internal.constants_ast import Constants

DEFAULT = "tilewright"
FRESH = "fresh"
MUTANTS = "mutants"

_PREFIX = "TILEWRIGHT_"


def register() -> None:
    """Make the profiles known, and load the default one."""
    # A busy machine is no fault of a test: nothing here may depend on how long it takes.
    settings.register_profile(
        DEFAULT,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        print_blob=False,
    )
    default = settings.get_profile(DEFAULT)
    settings.register_profile(MUTANTS, default, phases=(Phase.explicit, Phase.generate))
    settings.register_profile(FRESH, default, derandomize=False, print_blob=True)
    settings.load_profile(DEFAULT)
    # Hypothesis also draws literals of the modules that are loaded, unless "tests" is in their path: which ones that
    # are depends on the order of tests and on where the clone lies.
    HypothesisProvider._local_constants = Constants()  # no public setting does it


def isolate() -> Path:
    """Take this process's settings from nobody, and its caches and keys from a new folder, which is returned.

    What is tested is compiling: what other runs compiled, and what somebody has tuned, is not to be found.
    """
    folder = Path(tempfile.mkdtemp(prefix="tilewright-tests-"))
    for name in [name for name in os.environ if name.startswith(_PREFIX)]:
        del os.environ[name]
    os.environ[f"{_PREFIX}CACHE_DIR"] = str(folder / "kernels")
    os.environ[f"{_PREFIX}KEY_DIR"] = str(folder / "keys")
    os.environ[f"{_PREFIX}MODEL_CACHE_BYTES"] = "0"
    os.environ[f"{_PREFIX}RECORDS"] = "off"
    return folder


def remove(folder: Path) -> None:
    """The end of what ``isolate`` began."""
    shutil.rmtree(folder, ignore_errors=True)
