"""The command line: ``tilewright VERB ...``, also as ``python -m tilewright VERB ...``.

In: arguments. Out: text for people, or with ``--json`` one JSON object on standard output; errors go to standard error.

    tilewright run model.onnx --shape ids=1,128 --output results/
    tilewright bench model.onnx --vs onnxruntime --threads 4

Exit status: 0 done; 1 done, but results differ; 2 the arguments, the model or the inputs are wrong; 3 not supported;
4 a fault of Tilewright; 130 interrupted; 141 nobody reads the output. The text says what would help. ``docs/cli.md``
has all verbs and fields. A new verb is a file here with ``add_arguments`` and ``execute``, a line in ``command.VERBS``,
and a schema in ``docs/cli.schema.json``; only the file of the verb that is used is imported.
"""

from tilewright.cli.command import main

__all__ = ["main"]
