"""Planted faults that the fast tests must notice (``make mutants``)."""
