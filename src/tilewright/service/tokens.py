"""Tokens: who may submit, and how much. Only their hashes are kept.

    # name  SHA-256 of the token, and what differs from the usual quota
    alice   9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
    ci      60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752 waiting=10 day=200

A token has 256 random bits, so a plain hash is as hard to invert as a slow one.
"""

import hashlib
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tilewright.base.errors import BadInput
from tilewright.base.names import shown
from tilewright.service.limits import Quota

_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")
_HASH = re.compile(r"[0-9a-f]{64}")
_QUOTA = re.compile(r"(waiting|day)=([0-9]{1,9})")
_LONGEST = 256
"""Characters of a token that is looked at."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Whoever has a token."""

    name: str
    quota: Quota = field(default_factory=Quota)


LOCAL = Owner("local")
"""Everybody on this machine, where no tokens are asked for."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Owners by the hash of their token; none: nobody is asked for one."""

    owners: Mapping[str, Owner]

    def owner(self, token: str | None) -> Owner | None:
        """Whose token it is; None if it is nobody's."""
        if not self.owners:
            return LOCAL
        if token is None or len(token) > _LONGEST:
            return None
        return self.owners.get(hash_of(token))


def hash_of(token: str) -> str:
    """What is kept of a token."""
    return hashlib.sha256(token.encode(errors="surrogatepass")).hexdigest()


def generate(name: str) -> tuple[str, str]:
    """A new token, and the line for it. Raises ``BadInput`` for a malformed name."""
    _check_name(name)
    token = f"tw_{secrets.token_urlsafe(32)}"
    return token, f"{name} {hash_of(token)}"


def read(text: str, place: str) -> Tokens:
    """The tokens in ``text``. Raises ``BadInput``, which names ``place``, the line and what is wrong."""
    found: dict[str, Owner] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if words:
            key, owner = _owner(words, f"{place}, line {number}")
            if key in found:
                raise BadInput(f"{place}, line {number}: the token of {found[key].name} is there twice")
            found[key] = owner
    if not found:
        raise BadInput(f"{place} has no tokens: tilewright service --new-token NAME makes one")
    return Tokens(found)


def _owner(words: list[str], place: str) -> tuple[str, Owner]:
    if len(words) < 2 or not _HASH.fullmatch(words[1]):
        raise BadInput(f"{place}: write NAME SHA256, as tilewright service --new-token NAME prints it")
    name, key, *rest = words
    _check_name(name, f"{place}: ")
    quota = Quota()
    for word in rest:
        match = _QUOTA.fullmatch(word)
        if match is None:
            raise BadInput(f"{place}: {shown(word)} is neither waiting=NUMBER nor day=NUMBER")
        count = int(match[2])
        quota = replace(quota, waiting=count) if match[1] == "waiting" else replace(quota, day=count)
    return key, Owner(name, quota)


def _check_name(name: str, place: str = "") -> None:
    if not _NAME.fullmatch(name):
        raise BadInput(f"{place}{shown(name)} is no name of a token: use small letters, digits, `.`, `_` and `-`")
