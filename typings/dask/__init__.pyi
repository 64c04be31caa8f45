"""The part of Dask 2026.8 that Tilewright uses, typed."""

from dask import config as config
