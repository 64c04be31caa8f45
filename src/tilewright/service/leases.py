"""Claims of workers on builds. A claim holds while its lease is renewed; who lost it can't write any more.

A worker that dies, or is cut off, leaves a lease that runs out; another worker then claims the build again, a limited
number of times. Clocks of machines that share a database must agree to within a fraction of a lease.
"""

import time
import uuid
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, and_, or_, select, update

from tilewright.service.jobs import Clock
from tilewright.service.tables import BUILDS, Database, State

MOST_TEXT = 16_000
_MOST_STEP = 200


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to compile a build, and to say what came of it."""

    id: str
    build: str
    model: str
    options: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Progress:
    """``done`` of the ``total`` parts of ``step`` are done."""

    step: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Made:
    """The outcome of a build: an artifact, by its hash."""

    artifact: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The outcome of a build: an error of this kind, with this text."""

    kind: str
    text: str


Outcome = Made | Refused


@dataclass(frozen=True, slots=True)
class Leases:
    """The claims in a database. ``seconds``: how long a lease lasts; ``attempts``: workers that may die of a build."""

    database: Database
    seconds: float
    attempts: int
    clock: Clock = time.time

    def claim(self, worker: str) -> Claim | None:
        """The oldest build that waits or was left by its worker, claimed; None if there is none."""
        with self.database.reading() as connection:  # in most cases there is none, and nobody need wait for this
            if connection.execute(select(BUILDS.c.id).where(self._is_open()).limit(1)).first() is None:
                return None
        with self.database.writing() as connection:
            while True:
                oldest = select(BUILDS).where(self._is_open()).order_by(BUILDS.c.created, BUILDS.c.id).limit(1)
                row = connection.execute(oldest.with_for_update(skip_locked=True)).first()
                if row is None:
                    return None
                build, attempts = str(row.id), int(row.attempts)
                if attempts < self.attempts:
                    claim = Claim(uuid.uuid4().hex, build, str(row.model), str(row.options), attempts + 1)
                    return self._claim(connection, worker, claim)
                self._give_up(connection, build, attempts)

    def renew(self, claim: Claim, progress: Progress | None) -> bool:
        """Extend the lease, and tell the progress; false if the claim is lost, as the job was cancelled."""
        values: dict[str, object] = {"lease": self.clock() + self.seconds}
        if progress is not None:
            values |= {"step": progress.step[:_MOST_STEP], "done": progress.done, "total": progress.total}
        return self._write(claim, values, lasting=False)  # after a failure of power there is no worker to hold it

    def finish(self, claim: Claim, outcome: Outcome) -> bool:
        """Write the outcome; false if the claim is lost, and the outcome with it."""
        return self._write(claim, _ended(outcome, self.clock()))

    def give_back(self, claim: Claim) -> bool:
        """Let another worker have the build: this one is stopped, which is no fault of the build."""
        waiting = {"state": State.WAITING.value, "claim": None, "lease": None, "worker": None, "started": None}
        return self._write(claim, {**waiting, "attempts": claim.attempt - 1})

    def release(self, worker: str) -> None:
        """End the leases of a worker that is known to be dead."""
        theirs = and_(BUILDS.c.worker == worker, BUILDS.c.state == State.RUNNING.value)
        with self.database.writing() as connection:
            connection.execute(update(BUILDS).where(theirs).values(lease=0.0))

    def _is_open(self) -> ColumnElement[bool]:
        left = and_(BUILDS.c.state == State.RUNNING.value, BUILDS.c.lease < self.clock())
        return or_(BUILDS.c.state == State.WAITING.value, left)

    def _claim(self, connection: Connection, worker: str, claim: Claim) -> Claim:
        now = self.clock()
        running = {"state": State.RUNNING.value, "worker": worker, "claim": claim.id, "lease": now + self.seconds}
        fresh = {"attempts": claim.attempt, "started": now, "step": None, "done": None, "total": None}
        connection.execute(update(BUILDS).where(BUILDS.c.id == claim.build).values(**running, **fresh))
        return claim

    def _give_up(self, connection: Connection, build: str, attempts: int) -> None:
        text = (
            f"the worker that compiled this model ended {attempts} times before it was done: if the service was not "
            "stopped so often, the model takes more memory than its machine has"
        )
        ended = _ended(Refused("ResourceLimit", text), self.clock())
        connection.execute(update(BUILDS).where(BUILDS.c.id == build).values(**ended))

    def _write(self, claim: Claim, values: dict[str, object], *, lasting: bool = True) -> bool:
        held = and_(BUILDS.c.id == claim.build, BUILDS.c.claim == claim.id, BUILDS.c.state == State.RUNNING.value)
        with self.database.writing(lasting=lasting) as connection:
            return connection.execute(update(BUILDS).where(held).values(**values)).rowcount == 1


def _ended(outcome: Outcome, now: float) -> dict[str, object]:
    """A build that failed is not shared: the same submission is compiled again, as limits may have changed."""
    ended: dict[str, object] = {"claim": None, "lease": None, "ended": now}
    match outcome:
        case Made(artifact):
            return {**ended, "state": State.DONE.value, "artifact": artifact}
        case Refused(kind, text):
            failed = {"state": State.FAILED.value, "error_kind": kind, "error": text[:MOST_TEXT], "shared": None}
            return {**ended, **failed}
