"""What the model over statements knows before anything is measured: trees that come with the package.

``statements.xz`` was made by ``python -m benchmarks.cost_model train`` from candidates of ResNet-50's and
MobileNet-V2's kernels. It has LightGBM's text of the trees after a line of JSON: the format, a hash of the names and
the order of the features that the trees ask for, and the number that is added to each statement. Weights of other
features are refused, so whoever changes the features makes the file anew.
"""

import hashlib
import json
import lzma
from functools import lru_cache
from importlib.resources import files

from tilewright.base import fields
from tilewright.base.errors import BadInput
from tilewright.tune.features.statements import NAMES
from tilewright.tune.models.optional import require
from tilewright.tune.models.statements import StatementTrees

NAME = "statements.xz"
FORMAT = 1
MADE_BY = "python -m benchmarks.cost_model train"
_UNUSED = (
    "tree_sizes",
    "split_gain",
    "leaf_weight",
    "leaf_count",
    "internal_value",
    "internal_weight",
    "internal_count",
)
"""What LightGBM's text has beside the trees themselves; sizes, as they would not fit any more."""
_END = "end of trees"


@lru_cache(maxsize=1)
def pretrained() -> StatementTrees:
    """The trees of the package. Raises ``BadInput`` if LightGBM is missing, or the file is of other features."""
    return unpacked(files(__package__ or "").joinpath(NAME).read_bytes())


def features_hash(names: tuple[str, ...] = NAMES) -> str:
    """What weights are for."""
    return hashlib.sha256("\n".join(names).encode()).hexdigest()


def packed(model: StatementTrees) -> bytes:
    """The file of ``model``. Raises ``BadInput`` for one without trees."""
    if model.trees is None:
        raise BadInput("a model without trees knows nothing that could be kept")
    header = {"format": FORMAT, "features": features_hash(), "offset": model.offset}
    return lzma.compress(f"{json.dumps(header)}\n{_shortened(model.trees.model_to_string())}".encode())


def unpacked(data: bytes) -> StatementTrees:
    """The inverse of ``packed``. Raises ``BadInput`` for what it has not made, or for other features."""
    require("lightgbm", "tune")
    import lightgbm

    try:
        first, _, text = lzma.decompress(data).decode().partition("\n")
        header = fields.mapping(json.loads(first))
        form, features, offset = header["format"], header["features"], fields.number(header["offset"])
    except (lzma.LZMAError, ValueError, KeyError, TypeError) as error:
        raise BadInput(f"the weights of the cost model are damaged: {error}; make them anew: {MADE_BY}") from error
    if form != FORMAT or features != features_hash():
        raise BadInput(
            f"the weights of the cost model are of format {form} and of the features {str(features)[:8]}, but this is "
            f"format {FORMAT} with {len(NAMES)} features {features_hash()[:8]}; make them anew: {MADE_BY}"
        )
    return StatementTrees(offset, lightgbm.Booster(model_str=text))


def _shortened(text: str) -> str:
    """The trees alone."""
    trees, _, _ = text.partition(_END)
    return "".join(f"{line}\n" for line in trees.splitlines() if line.partition("=")[0] not in _UNUSED) + f"{_END}\n"
