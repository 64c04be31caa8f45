"""The part of boto3 1.44 that Tilewright uses, typed."""

from typing import Literal

from botocore.client import S3
from botocore.config import Config

def client(service_name: Literal["s3"], *, config: Config) -> S3: ...
