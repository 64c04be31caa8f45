"""Many who write at the same time, in PostgreSQL: what one transaction decides, no other can undo meanwhile.

``test_jobs`` runs there, too; ``test_kills`` kills the server.
"""

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import pytest
from sqlalchemy import text, update

from tests.service.servers import Postgresql
from tilewright.base.errors import BadInput
from tilewright.service.jobs import Jobs, Submission
from tilewright.service.leases import Claim, Leases, Made
from tilewright.service.limits import Quota, QuotaExceeded, Unavailable
from tilewright.service.requests import Given, chosen
from tilewright.service.tables import BUILDS, Database, State
from tilewright.service.tokens import Owner

pytestmark = pytest.mark.slow

OPTIONS = chosen(Given(target="x86_64")).text()
ARTIFACT = "a" * 64
ALICE = Owner("alice", Quota(waiting=1_000_000, day=1_000_000))
MANY = 8


@contextmanager
def opened(url: str, count: int = 1) -> Generator[list[Database]]:
    """The database, as so many processes have it."""
    databases = [Database(url) for _ in range(count)]
    databases[0].add_owner("alice")
    try:
        yield databases
    finally:
        for database in databases:
            database.close()


def submission(key: object) -> Submission:
    return Submission(str(key).rjust(64, "0"), "m" * 64, OPTIONS)


Result = TypeVar("Result")


def at_once(*calls: Callable[[], Result]) -> list[Result]:
    """The results of calls that begin at the same time."""
    barrier = threading.Barrier(len(calls))

    def run(call: Callable[[], Result]) -> Result:
        barrier.wait()
        return call()

    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(run, calls))


def test_tables_are_made_once(database_server: Postgresql) -> None:
    url = database_server.url()
    for database in at_once(*[lambda: Database(url)] * MANY):
        database.close()


def test_each_build_is_claimed_once(database_server: Postgresql) -> None:
    with opened(database_server.url(), MANY) as databases:
        leases = [Leases(database, 60.0, 5) for database in databases]
        for key in range(120):
            Jobs(databases[0]).submit(ALICE, submission(key), lambda _: True)

        def all_of(worker: Leases) -> list[Claim]:
            return list(iter(lambda: worker.claim("w"), None))

        claims = [claim for found in at_once(*[lambda of=of: all_of(of) for of in leases]) for claim in found]
        assert sorted(Counter(claim.build for claim in claims).values()) == [1] * 120
        finished = at_once(*[lambda of=of: of.finish(claims[0], Made(ARTIFACT)) for of in leases])
        assert sorted(finished) == [False] * (MANY - 1) + [True]


def test_the_same_submissions_at_once_share_a_build(database_server: Postgresql) -> None:
    with opened(database_server.url(), MANY) as databases:
        for key in range(20):
            at_once(
                *[lambda of=of, key=key: Jobs(of).submit(ALICE, submission(key), lambda _: True) for of in databases]
            )
        assert Jobs(databases[0]).count() == {"waiting": 20, "running": 0}


def test_a_quota_holds_against_submissions_at_once(database_server: Postgresql) -> None:
    few = Owner("alice", Quota(waiting=5, day=1000))
    keys = itertools.count()
    with opened(database_server.url(), MANY) as databases:

        def try_many(jobs: Jobs) -> int:
            done = 0
            for _ in range(5):
                try:
                    jobs.submit(few, submission(next(keys)), lambda _: True)
                    done += 1
                except QuotaExceeded:
                    pass
            return done

        assert sum(at_once(*[lambda of=of: try_many(Jobs(of)) for of in databases])) == 5


ENDS = {
    "done": ({"state": "done", "artifact": ARTIFACT}, State.DONE),
    "failed": ({"state": "failed", "shared": None, "error_kind": "InvalidModel", "error": "bad"}, State.FAILED),
}


@pytest.mark.parametrize("end", ENDS)
def test_who_comes_while_a_build_ends_waits_for_its_end(end: str, database_server: Postgresql) -> None:
    """A cancellation that is too late changes nothing, and nobody shares a build that has just failed."""
    values, state = ENDS[end]
    with opened(database_server.url(), 3) as (worker, other, third):
        job = Jobs(worker).submit(ALICE, submission("k"), lambda _: True)
        assert Leases(worker, 60.0, 5).claim("w") is not None
        with ThreadPoolExecutor(2) as threads:
            with worker.writing() as connection:
                connection.execute(update(BUILDS).values(**values))
                cancelled = threads.submit(lambda: Jobs(other).cancel("alice", job.id))
                again = threads.submit(lambda: Jobs(third).submit(ALICE, submission("k"), lambda _: True))
                await_waiting(worker, 2)
            late, new = cancelled.result(60), again.result(60)
        assert late is not None
        assert late.state is state
        assert Jobs(worker).find("alice", job.id) == late
        assert new.state is (State.DONE if end == "done" else State.WAITING)


def await_waiting(database: Database, count: int) -> None:
    """Wait until so many connections wait for a lock."""
    counted = text(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    )
    end = time.monotonic() + 60
    while True:
        with database.reading() as connection:
            if connection.execute(counted).scalar_one() == count:
                return
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_server_that_is_killed_is_unavailable_until_it_is_back(database_server: Postgresql) -> None:
    with opened(database_server.url()) as (database,):
        jobs = Jobs(database)
        before = jobs.submit(ALICE, submission("k"), lambda _: True)
        database_server.kill()
        try:
            for _ in range(3):
                with pytest.raises(Unavailable, match="the database does not answer"):
                    jobs.find("alice", before.id)
            with pytest.raises(BadInput, match="the database can't be used"):
                Database(f"postgresql://x@/y?host={database_server.folder}")
        finally:
            database_server.start()
        assert jobs.find("alice", before.id) == before
