"""The weights that come with the package: what a model has learned from the whole data set."""

from pathlib import Path

from tilewright.tune.models import pretrained
from tilewright.tune.models.pretrained import NAME, packed
from tilewright.tune.models.statements import BEFOREHAND, StatementModel

from .data import Data

PACKAGE = Path(pretrained.__file__).with_name(NAME)


def train(data: Data, path: Path) -> int:
    """Write the file; returns its bytes."""
    model = StatementModel(growth=BEFOREHAND)
    model.fit(data.history())
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.write_bytes(packed(model.learned))
