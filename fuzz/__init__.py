"""Coverage-guided fuzzers of everything that Tilewright reads: `python -m fuzz`.

target.py      what a fuzzer is: seeds, one check of some bytes, and (optionally) a mutation that knows the format
targets/       one file for each: models, programs, rules, records, artifacts, manifests, targets
child.py       one fuzzer in a process of its own: libFuzzer, through Atheris (the extra `[fuzz]`)
__main__.py    several fuzzers for some time, what they find, and the exit status
corpus/        finds that were mended; the tests replay all of them, and the fuzzers start from them

A check returns for good input and raises a ``TilewrightError`` for bad input. Everything else is a find: another
exception, ``InternalError``, the death of the process, 10 seconds or 2 GiB for one input.
"""
