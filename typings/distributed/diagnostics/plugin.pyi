"""Bases of plugins; Dask calls what they override."""

class SchedulerPlugin:
    name: str

class WorkerPlugin:
    name: str
