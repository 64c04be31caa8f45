"""One fuzzer, in a process of its own: `python -m fuzz.child NAME [libFuzzer's options and folders]`.

libFuzzer ends the process with the first find, and writes the input to the folder of ``-artifact_prefix``.
"""

import sys

import atheris

with atheris.instrument_imports(include=["tilewright"], enable_loader_override=False):
    from fuzz.targets import load

    TARGET = load(sys.argv[1])


def _mutated(data: bytes, most: int, seed: int) -> bytes:
    """The format's mutation three times of four, libFuzzer's own otherwise."""
    assert TARGET.mutate is not None
    return TARGET.mutate(data, most, seed) if seed % 4 else atheris.Mutate(data, most)


def main() -> None:
    """Fuzz until a find, or for as long as the options say."""
    mutation = {} if TARGET.mutate is None else {"custom_mutator": _mutated}
    atheris.Setup([sys.argv[0], *sys.argv[2:]], TARGET.run, **mutation)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
