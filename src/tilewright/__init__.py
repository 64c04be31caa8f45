"""Tilewright: a deep-learning compiler that a person can read.

``docs/architecture.md`` has the way that a model goes and the floors of the house. Importing this package imports no
compiler: running a saved artifact needs NumPy only.
"""

__version__ = "0.1.0"
