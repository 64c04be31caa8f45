"""Simulated cycles: code for AArch64 processors that are not here, run by an emulator and timed by tables of pipelines.

In: a compiled program (``runtime.artifact.Artifact``) and its inputs. Out: its outputs, and the cycles of a core.

    simulate(parts, {"x": x}).cost.cycles

    emulator        runs the code (Unicorn)                 watching        counts blocks and misses natively
    decoding        what instructions need (Capstone)       pipeline        what blocks cost
    cycles          all together                            cores           which core it is

The tables of cores are in ``target/cores.py``: a new core is a line there. ``docs/simulation.md`` has the model.
"""
