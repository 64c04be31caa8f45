"""A little artifact, for the tests of this folder: z = x + y on 2 x 3 numbers, and a constant that nobody reads."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from tests.runtime.images import ADD, image_of
from tilewright.base import dtypes as dt
from tilewright.base import host
from tilewright.runtime.artifact import Artifact, Build, save
from tilewright.runtime.manifest import Manifest, TensorSpec

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def adder() -> Artifact:
    here = host.detect()
    specs = [TensorSpec(name, dt.f32, (2, 3)) for name in ("x", "y", "z")]
    constant = TensorSpec("c", dt.i64, (5,))
    manifest = Manifest(tuple(specs[:2]), (specs[2],), (constant,))
    build = Build("1.2.3", "ab" * 32, f"{here.arch.value},test", here.arch.value, tuple(sorted(here.features)))
    return Artifact(build, manifest, tuple(image_of(ADD.format(n=6))), (np.arange(5),))


def built_for(*features: str, architecture: str | None = None) -> Artifact:
    made = adder()
    build = replace(made.build, features=features, architecture=architecture or made.build.architecture)
    return replace(made, build=build)


def saved(folder: Path, artifact: Artifact | None = None, *, signed: bool = True) -> Path:
    """The path of a saved artifact; its key is in ``folder / "keys"``."""
    save(artifact or adder(), folder / "m.tw", folder / "keys", signed=signed)
    return folder / "m.tw"
