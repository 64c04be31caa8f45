"""Jobs, as the API sees them: submitted, found, cancelled. Each function is one transaction."""

import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from sqlalchemy import Connection, Executable, bindparam, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from tilewright.service.limits import Quota
from tilewright.service.tables import BUILDS, JOBS, LIVE_NAMES, OWNERS, Database, State
from tilewright.service.tokens import Owner

Clock = Callable[[], float]
MOST_NAME = 200


@dataclass(frozen=True, slots=True)
class Submission:
    """What is to be compiled. ``key``: its content hash; ``model``: that of the model; ``options``: ``Chosen.text``.

    ``name``: for people.
    """

    key: str
    model: str
    options: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """A job; times are seconds since 1970. ``done`` of ``total`` parts of ``step`` are done."""

    id: str
    owner: str
    name: str
    state: State
    model: str
    options: str
    created: float
    started: float | None
    ended: float | None
    attempts: int
    step: str | None
    done: int | None
    total: int | None
    error_kind: str | None
    error: str | None
    artifact: str | None


# As the fields of a job, and when it was cancelled.
_COLUMNS = (
    *(JOBS.c.id, JOBS.c.owner, JOBS.c.name),
    *(BUILDS.c.state, BUILDS.c.model, BUILDS.c.options),
    *(JOBS.c.created, BUILDS.c.started, BUILDS.c.ended),
    *(BUILDS.c.attempts, BUILDS.c.step, BUILDS.c.done, BUILDS.c.total),
    *(BUILDS.c.error_kind, BUILDS.c.error, BUILDS.c.artifact, JOBS.c.cancelled),
)
_STATE = _COLUMNS.index(BUILDS.c.state)
_FOUND = select(*_COLUMNS).join(BUILDS, BUILDS.c.id == JOBS.c.build)

# What each request asks: a statement that is made anew takes longer than SQLite takes to answer it.
_OWNED = JOBS.c.owner == bindparam("owner")
_LIVE_JOB = (JOBS.c.cancelled.is_(None), BUILDS.c.state.in_(LIVE_NAMES))
_USED = select(
    select(func.count()).select_from(JOBS).join(BUILDS).where(_OWNED, *_LIVE_JOB).scalar_subquery(),
    select(func.count()).select_from(JOBS).where(_OWNED, JOBS.c.created > bindparam("since")).scalar_subquery(),
)
"""How many jobs of an owner have not ended, and how many were submitted lately."""
_JOB = _FOUND.where(JOBS.c.id == bindparam("job"))
_OWN_JOB = _JOB.where(_OWNED)
_NEWEST = _FOUND.where(_OWNED).order_by(JOBS.c.created.desc(), JOBS.c.id).limit(bindparam("count"))
_OWNER = select(OWNERS).where(OWNERS.c.name == bindparam("owner")).with_for_update()
_SHARED = select(BUILDS.c.id, BUILDS.c.artifact).where(BUILDS.c.shared == bindparam("key"))
_SHARED_TO_WRITE = _SHARED.with_for_update()
_COUNTED = select(BUILDS.c.state, func.count()).where(BUILDS.c.state.in_(LIVE_NAMES)).group_by(BUILDS.c.state)
_ADD_JOB, _ADD_BUILD = insert(JOBS), insert(BUILDS)


@dataclass(frozen=True, slots=True)
class Jobs:
    """The jobs in a database."""

    database: Database
    clock: Clock = time.time

    def check_quota(self, owner: Owner) -> None:
        """Raises ``QuotaExceeded`` if ``owner`` may submit nothing now: asked before a model is received."""
        with self.database.reading() as connection:
            self._check_quota(connection, owner)

    def submit(self, owner: Owner, submission: Submission, is_kept: Callable[[str], bool]) -> Job:
        """A new job. It shares the build of the same submission that waits, runs or is done, if there is one.

        ``is_kept``: whether the artifact with this hash is still there. Raises ``QuotaExceeded``.
        """
        lost = self._lost(submission, is_kept)
        with suppress(IntegrityError):  # another process has just begun the same build; share it
            return self._submit(owner, submission, lost)
        return self._submit(owner, submission, lost)

    def _lost(self, submission: Submission, is_kept: Callable[[str], bool]) -> str | None:
        """The artifact of the same submission, if it is there no more: asked before anybody has to wait for this."""
        with self.database.reading() as connection:
            found = connection.execute(_SHARED, {"key": submission.key}).first()
        artifact = None if found is None else found[1]
        return None if artifact is None or is_kept(str(artifact)) else str(artifact)

    def _submit(self, owner: Owner, submission: Submission, lost: str | None) -> Job:
        with self.database.writing() as connection:
            connection.execute(_OWNER, {"owner": owner.name})
            self._check_quota(connection, owner)
            now = self.clock()
            build = self._shared(connection, submission, lost) or self._new_build(connection, submission, now)
            job = uuid.uuid4().hex
            name = submission.name[:MOST_NAME]
            added = {"id": job, "build": build, "owner": owner.name, "name": name, "created": now}
            connection.execute(_ADD_JOB, added)
            return _found(connection, _JOB, {"job": job})[0]

    def find(self, owner: str, job: str) -> Job | None:
        """The job, if it is this owner's."""
        with self.database.reading() as connection:
            return next(iter(_found(connection, _OWN_JOB, {"job": job, "owner": owner})), None)

    def listed(self, owner: str, count: int) -> list[Job]:
        """The newest jobs of the owner."""
        with self.database.reading() as connection:
            return _found(connection, _NEWEST, {"owner": owner, "count": count})

    def cancel(self, owner: str, job: str) -> Job | None:
        """Cancel the job, unless it has ended; its build too, if no other job waits for it. None: there is none."""
        with self.database.writing() as connection:
            wanted = {"job": job, "owner": owner}
            # Locked, so that the build does not end, and no submission begins to share it, meanwhile.
            found = _found(connection, _OWN_JOB.with_for_update(of=[BUILDS, JOBS]), wanted)
            if not found:
                return None
            if not found[0].state.is_final:
                self._cancel(connection, job)
            return _found(connection, _OWN_JOB, wanted)[0]

    def may_read(self, owner: str, artifact: str) -> bool:
        """Whether a job of the owner made this artifact."""
        joined = select(JOBS.c.id).join(BUILDS, BUILDS.c.id == JOBS.c.build)
        with self.database.reading() as connection:
            return (
                connection.execute(joined.where(JOBS.c.owner == owner, BUILDS.c.artifact == artifact)).first()
                is not None
            )

    def count(self) -> dict[str, int]:
        """The number of builds in each state that is not final."""
        with self.database.reading() as connection:
            found = {str(state): int(count) for state, count in connection.execute(_COUNTED)}
        return {state: found.get(state, 0) for state in LIVE_NAMES}

    def _check_quota(self, connection: Connection, owner: Owner) -> None:
        asked = {"owner": owner.name, "since": Quota.since(self.clock())}
        waiting, lately = connection.execute(_USED, asked).one()
        owner.quota.check(owner.name, waiting, lately)

    def _shared(self, connection: Connection, submission: Submission, lost: str | None) -> str | None:
        """The build of the same submission; that whose artifact is ``lost`` is shared no more."""
        row = connection.execute(_SHARED_TO_WRITE, {"key": submission.key}).first()
        if row is None:
            return None
        build, artifact = str(row[0]), row[1]
        if artifact is None or artifact != lost:
            return build
        connection.execute(update(BUILDS).where(BUILDS.c.id == build).values(shared=None))
        return None

    def _new_build(self, connection: Connection, submission: Submission, now: float) -> str:
        build = uuid.uuid4().hex
        added = {"id": build, "shared": submission.key, "model": submission.model, "options": submission.options}
        connection.execute(_ADD_BUILD, {**added, "state": State.WAITING.value, "created": now, "attempts": 0})
        return build

    def _cancel(self, connection: Connection, job: str) -> None:
        now = self.clock()
        connection.execute(update(JOBS).where(JOBS.c.id == job).values(cancelled=now))
        build = connection.execute(select(JOBS.c.build).where(JOBS.c.id == job)).scalar_one()
        others = select(JOBS.c.id).where(JOBS.c.build == build, JOBS.c.cancelled.is_(None))
        if connection.execute(others).first() is None:
            ended = {"state": State.CANCELLED.value, "shared": None, "claim": None, "lease": None, "ended": now}
            live = BUILDS.c.state.in_(LIVE_NAMES)
            connection.execute(update(BUILDS).where(BUILDS.c.id == build, live).values(**ended))


def _found(connection: Connection, wanted: Executable, given: Mapping[str, object]) -> list[Job]:
    """The jobs that a statement of ``_COLUMNS`` finds."""
    found: list[Job] = []
    for *values, cancelled in connection.execute(wanted, given):
        values[_STATE] = State(values[_STATE])
        found.append(_seen(Job(*values), cancelled))
    return found


def _seen(job: Job, cancelled: float | None) -> Job:
    """A cancelled job shows nothing of its build, which may go on for others."""
    if cancelled is None:
        return job
    job = replace(job, state=State.CANCELLED, started=None, ended=cancelled, step=None, done=None, total=None)
    return replace(job, error_kind=None, error=None, artifact=None)
