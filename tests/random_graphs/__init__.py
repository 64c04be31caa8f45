"""Random valid ONNX graphs through Tilewright, against ONNX Runtime and against the same graph in float64.

``python -m tests.random_graphs SEED ...`` runs seeds, ``--minimize`` makes a failing one small, ``--save NAME`` keeps
it under ``regressions/`` (``NAME_SEED`` if there are several seeds). A seed's graph is another one when the importer
knows more operators; a saved one stays.

- ``case``: a model with its inputs, as data. ``draw``: what the rules of generation take their operands from.
- ``rules/``: one file per family of operators; each rule proposes a node. ``generator``: a case from a seed.
- ``reference``: float64 evaluation, with the error that a right implementation may make.
- ``verdict``: what Tilewright makes of a case. ``minimize``: a smaller case with the same verdict.
- ``shards``: many seeds in child processes; a crash or hang is charged to its seed.

To add an operator: a rule in its family's table. A test asserts that everything that the importer knows has one.
"""
