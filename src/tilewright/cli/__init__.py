"""The command line: ``tilewright VERB ...``, also as ``python -m tilewright VERB ...``.

In: arguments. Out: text for people, or with ``--json`` one JSON object on standard output; errors go to standard error.

    tilewright run model.onnx --shape ids=1,128 --output results/
    tilewright bench model.onnx --vs onnxruntime --threads 4

Exit status: 0 done; 1 done, but results differ; 2 the arguments, the model or the inputs are wrong; 3 not supported; 4
a fault of Tilewright; 130 interrupted; 141 the output pipe was closed. The message states the remedy. ``docs/cli.md``
has all verbs and fields. A new verb is a file here with ``add_arguments`` and ``execute``, a line in ``command.VERBS``,
and a schema in ``docs/cli.schema.json``; only the module of the chosen verb is imported.
"""

from tilewright.cli.command import main

__all__ = ["main"]
