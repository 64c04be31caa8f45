"""Files in a bucket of an object store that speaks the API of S3, by boto3.

    s3://BUCKET/PREFIX    objects PREFIX/models/<sha256> and PREFIX/artifacts/<sha256>

Credentials, region, address (``AWS_ENDPOINT_URL_S3``) and the rest are what boto3 finds in the environment and its
files. Large files are sent in parts; the store shows an object only when all of its parts are there. What is read is
hashed: a store that gives other bytes than were put is noticed before a model is compiled.
"""

import hashlib
import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import boto3
from boto3.exceptions import Boto3Error
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from tilewright.base.errors import BadInput, InternalError
from tilewright.base.names import shown
from tilewright.service.limits import Unavailable
from tilewright.service.objects import Kind, Stream

if TYPE_CHECKING:  # boto3 makes the class of the client when it runs
    from botocore.client import S3
    from botocore.response import StreamingBody

_PLACE: Final = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])/?((?:[A-Za-z0-9_.-]+/)*[A-Za-z0-9_.-]*)")
_PART: Final = 64 << 20
_PIECE: Final = 1 << 20
_ABSENT: Final = frozenset({"404", "NoSuchKey", "NotFound"})
_CONFIG: Final = Config(
    connect_timeout=5, read_timeout=30, max_pool_connections=32, retries={"mode": "standard", "total_max_attempts": 4}
)


@dataclass(frozen=True, slots=True)
class Bucket:
    """Objects in ``name`` whose keys begin with ``prefix``; files of at least ``part`` bytes are sent in such parts."""

    client: "S3"
    name: str
    prefix: str = ""
    part: int = _PART

    @staticmethod
    def open(place: str) -> "Bucket":
        """The bucket that ``s3://BUCKET/PREFIX`` names. Raises ``BadInput`` if there is none, or it can't be used."""
        found = _PLACE.fullmatch(place)
        if found is None:
            raise BadInput(f"{shown(place)} is no store: write s3://BUCKET or s3://BUCKET/PREFIX")
        prefix = found[2].rstrip("/")
        try:
            bucket = Bucket(boto3.client("s3", config=_CONFIG), found[1], f"{prefix}/" if prefix else "")
            bucket.client.head_bucket(Bucket=bucket.name)
        except (BotoCoreError, ClientError, ValueError) as error:
            raise BadInput(
                f"the bucket {found[1]} can't be used: {error}; it must exist, and credentials, region and address are"
                " read from the environment (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL_S3, ...)"
            ) from error
        return bucket

    def put(self, kind: Kind, sha256: str, part: Path) -> None:
        """As ``Objects.put``."""
        if self.has(kind, sha256):
            return
        config = TransferConfig(multipart_threshold=self.part, multipart_chunksize=self.part, max_concurrency=4)
        with self._explained():
            self.client.upload_file(str(part), self.name, self._key(kind, sha256), Config=config)

    def has(self, kind: Kind, sha256: str) -> bool:
        """As ``Objects.has``."""
        with self._explained():
            try:
                self.client.head_object(Bucket=self.name, Key=self._key(kind, sha256))
            except ClientError as error:
                if _is_absent(error):
                    return False
                raise
        return True

    def fetch(self, kind: Kind, sha256: str, to: Path) -> bool:
        """As ``Objects.fetch``."""
        stream = self.content(kind, sha256)
        if stream is None:
            return False
        hashed = hashlib.sha256()
        with to.open("wb") as file:
            for piece in stream.pieces:
                hashed.update(piece)
                file.write(piece)
        if hashed.hexdigest() != sha256:
            raise InternalError(f"the object {self._key(kind, sha256)} has other bytes than were put: remove it")
        return True

    def content(self, kind: Kind, sha256: str) -> Stream | None:
        """As ``Objects.content``."""
        with self._explained():
            try:
                found = self.client.get_object(Bucket=self.name, Key=self._key(kind, sha256))
            except ClientError as error:
                if _is_absent(error):
                    return None
                raise
        return Stream(found["ContentLength"], self._pieces(found["Body"]))

    def clear(self, older: float) -> None:
        """As ``Objects.clear``: parts of killed writers are paid for until somebody removes them."""
        with self._explained():
            pages = self.client.get_paginator("list_multipart_uploads").paginate(Bucket=self.name, Prefix=self.prefix)
            for upload in [upload for page in pages for upload in page.get("Uploads", [])]:
                if upload["Initiated"].timestamp() < older:
                    key, which = upload["Key"], upload["UploadId"]
                    self.client.abort_multipart_upload(Bucket=self.name, Key=key, UploadId=which)

    def _key(self, kind: Kind, sha256: str) -> str:
        return f"{self.prefix}{kind.value}/{sha256}"

    def _pieces(self, body: "StreamingBody") -> Iterator[bytes]:
        try:
            with self._explained():
                yield from body.iter_chunks(_PIECE)
        finally:
            body.close()

    @contextmanager
    def _explained(self) -> Generator[None]:
        try:
            yield
        except (Boto3Error, BotoCoreError, ClientError) as error:
            raise Unavailable(f"the object store does not answer: {error}") from error


def _is_absent(error: ClientError) -> bool:
    return error.response["Error"]["Code"] in _ABSENT
