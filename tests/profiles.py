"""How tests draw, and what of the machine they may see: nothing may depend on the day, the order or the host.

- ``tilewright``, the default: what a test draws follows from its own text, and nothing else.
- ``mutants``: the same without making failing examples small, which nobody reads.
- ``fresh``: other draws each night, from ``--hypothesis-seed``. ``tests/nightly.py`` keeps what it finds.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TypeAlias

import numpy as np
from hypothesis import HealthCheck, Phase, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

DEFAULT = "tilewright"
FRESH = "fresh"
MUTANTS = "mutants"

_PREFIX = "TILEWRIGHT_"
FOLDER = "TESTS_FOLDER"
"""The variable with the folder of this run of the tests: workers have it from the process that starts them."""


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
    none = Constants()
    providers._get_local_constants = lambda: none  # no public setting does it; it also saves a second in each process


def examples(few: int, by_night: int) -> settings:
    """For tests whose examples take long: ``few`` with every change, and ``by_night`` where draws are fresh."""
    is_fresh = settings.get_current_profile_name() == FRESH
    return settings(max_examples=by_night if is_fresh else few)


State: TypeAlias = "Mapping[str, object] | tuple[object, ...]"


@dataclass(frozen=True)
class Generators:
    """The generators of test modules, as they are when all modules have been read.

    Each test finds them so; what it draws would else depend on the tests that ran before it in this process.
    """

    states: Mapping[tuple[str, str], State]

    @staticmethod
    def of_modules(prefix: str = "tests.") -> "Generators":
        """Those of the modules that are loaded."""
        states: dict[tuple[str, str], State] = {}
        for name, module in list(sys.modules.items()):
            if name.startswith(prefix):
                for key, value in vars(module).items():
                    if isinstance(value, np.random.Generator):
                        states[name, key] = value.bit_generator.state
                    elif isinstance(value, Random):
                        states[name, key] = value.getstate()
        return Generators(states)

    def restore(self) -> None:
        """Put all of them back."""
        for (name, key), state in self.states.items():
            generator = vars(sys.modules[name])[key]
            if isinstance(generator, Random):
                generator.setstate(state)
            else:
                generator.bit_generator.state = state


def isolate() -> Path:
    """Take this process's settings from nobody, and its caches and keys from a new folder, which is returned.

    What is tested is compiling: what other runs compiled, and what somebody has tuned, is not to be found.
    """
    folder = Path(tempfile.mkdtemp(prefix="tilewright-tests-"))
    for name in [name for name in os.environ if name.startswith(_PREFIX)]:
        del os.environ[name]
    os.environ[FOLDER] = str(folder)
    os.environ[f"{_PREFIX}CACHE_DIR"] = str(folder / "kernels")
    os.environ[f"{_PREFIX}KEY_DIR"] = str(folder / "keys")
    os.environ[f"{_PREFIX}MODEL_CACHE_BYTES"] = "0"
    os.environ[f"{_PREFIX}RECORDS"] = "off"
    os.environ[f"{_PREFIX}MACHINE"] = "off"
    os.environ[f"{_PREFIX}REPRO_DIR"] = "off"  # nor are faults that tests plant to push out real ones
    return folder


def own_folder() -> Path | None:
    """The folder that the processes of this run of the tests share; None outside of one."""
    return Path(os.environ[FOLDER]) if FOLDER in os.environ else None


def remove(folder: Path) -> None:
    """The end of what ``isolate`` began."""
    shutil.rmtree(folder, ignore_errors=True)
