"""The reference back end: any scheduled program, with blocks, threads, barriers and explicit memories, run in NumPy.

In: a loop program and arrays. Out: arrays, and a report: bytes by memory, operations, barriers; races, and accesses out
of bounds or out of scope. It knows nothing of how schedules are made, and is the oracle of back ends for devices. ::

    outputs, report = run_reference(program, {"A": a, "B": b})
    report.check()

    report     what it says
    lanes      many threads at once: expressions as functions of arrays with a value for each
    cells      the elements of a buffer, and who touched them last
    machine    statements
"""

from tilewright.backend.reference.machine import run_reference
from tilewright.backend.reference.report import Access, Fault, Overflow, Race, Report, Thread, Traffic, Trouble

__all__ = ["Access", "Fault", "Overflow", "Race", "Report", "Thread", "Traffic", "Trouble", "run_reference"]
