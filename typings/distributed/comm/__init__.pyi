"""Connections."""

from collections.abc import Mapping, Sequence
from typing import TypedDict

class Certificate(TypedDict):
    """As ``ssl.SSLSocket.getpeercert`` gives it."""

    subject: Sequence[Sequence[tuple[str, str]]]

class Comm:
    extra_info: Mapping[str, Certificate]
