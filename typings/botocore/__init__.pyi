"""The part of botocore 1.44 that Tilewright uses, typed."""
