"""The reference back end: any scheduled program, with blocks, threads, barriers and explicit memories, run in NumPy.

In: a loop program and arrays. Out: arrays, and a report: bytes by memory, operations, barriers; races, and accesses out
of bounds or out of scope. It is independent of schedules, and is the oracle of back ends for devices. ::

    outputs, report = run_reference(program, {"A": a, "B": b})
    report.check()

    report     the report
    lanes      expressions for many threads at once, as functions of arrays
    cells      the elements of a buffer, and their last accesses
    machine    statements
"""

from tilewright.backend.reference.machine import run_reference
from tilewright.backend.reference.report import Access, Fault, Overflow, Race, Report, Thread, Traffic, Trouble

__all__ = ["Access", "Fault", "Overflow", "Race", "Report", "Thread", "Traffic", "Trouble", "run_reference"]
