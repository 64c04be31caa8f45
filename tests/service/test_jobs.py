"""States of jobs and claims, against a clock that stands: each job has one outcome, whoever dies or is late."""

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.service.support import Clock, Here
from tilewright.base.errors import BadInput
from tilewright.service.jobs import Job, Submission
from tilewright.service.leases import Claim, Made, Progress, Refused
from tilewright.service.limits import Limits, Quota, QuotaExceeded
from tilewright.service.requests import Given, chosen
from tilewright.service.tables import META, Database, State
from tilewright.service.tokens import LOCAL, Owner

OPTIONS = chosen(Given(target="x86_64")).text()
ARTIFACT = "a" * 64


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def here(tmp_path: Path, request: pytest.FixtureRequest) -> Generator[Here]:
    url = None if request.param == "sqlite" else request.getfixturevalue("database_server").url()
    with Here(tmp_path, clock=Clock(), limits=Limits(lease_seconds=10.0, attempts=3), url=url) as made:
        made.database.add_owner("alice")
        yield made


def submitted(here: Here, key: str = "k", owner: Owner = LOCAL, *, kept: bool = True) -> Job:
    return here.jobs.submit(owner, Submission(key.ljust(64, "0"), "m" * 64, OPTIONS), lambda _artifact: kept)


def claimed(here: Here, worker: str = "w") -> Claim:
    claim = here.leases.claim(worker)
    assert claim is not None
    return claim


def state(here: Here, job: Job) -> State:
    found = here.jobs.find(job.owner, job.id)
    assert found is not None
    return found.state


def later(here: Here, seconds: float) -> None:
    assert isinstance(here.clock, Clock)
    here.clock.now += seconds


def test_one_build_for_the_same_submission(here: Here) -> None:
    first, second = submitted(here), submitted(here)
    later(here, 1.0)
    other = submitted(here, "other")
    claim = claimed(here)
    assert claimed(here).build != claim.build
    assert here.leases.claim("w") is None
    assert here.leases.finish(claim, Made(ARTIFACT))
    assert state(here, first) is state(here, second) is State.DONE
    assert state(here, other) is State.RUNNING
    assert submitted(here).artifact == ARTIFACT
    assert submitted(here, kept=False).state is State.WAITING  # its file was removed


def test_the_oldest_comes_first(here: Here) -> None:
    jobs = []
    for key in ("c", "a", "b"):
        jobs.append(submitted(here, key))
        later(here, 1.0)
    for job in jobs:
        claimed(here)
        assert state(here, job) is State.RUNNING


def test_a_dead_worker_is_replaced_and_can_say_nothing_any_more(here: Here) -> None:
    job = submitted(here)
    dead = claimed(here)
    later(here, 9.0)
    assert here.leases.claim("v") is None
    assert here.leases.renew(dead, Progress("fuse", 1, 2))
    later(here, 9.0)
    assert here.leases.claim("v") is None
    later(here, 2.0)
    second = claimed(here, "v")
    assert second.attempt == 2
    assert not here.leases.renew(dead, None)
    assert not here.leases.finish(dead, Refused("InternalError", "late"))
    assert not here.leases.give_back(dead)
    assert here.leases.finish(second, Made(ARTIFACT))
    assert not here.leases.finish(second, Refused("InternalError", "twice"))
    assert state(here, job) is State.DONE


def test_a_job_that_kills_its_workers_ends_in_an_error(here: Here) -> None:
    job = submitted(here)
    for attempt in (1, 2, 3):
        assert claimed(here, "w").attempt == attempt
        here.leases.release("w")
        later(here, 0.1)
    assert here.leases.claim("w") is None
    found = here.jobs.find("local", job.id)
    assert found is not None
    assert (found.state, found.error_kind) == (State.FAILED, "ResourceLimit")
    assert "ended 3 times before it was done" in str(found.error)


def test_a_worker_that_is_stopped_is_no_attempt(here: Here) -> None:
    submitted(here)
    for _ in range(5):
        claim = claimed(here)
        assert claim.attempt == 1
        assert here.leases.give_back(claim)


def test_what_failed_is_compiled_again_when_it_is_submitted_again(here: Here) -> None:
    job = submitted(here)
    here.leases.finish(claimed(here), Refused("InvalidModel", "x" * 100_000))
    found = here.jobs.find("local", job.id)
    assert found is not None
    assert len(str(found.error)) < 20_000
    assert submitted(here).state is State.WAITING


def test_a_cancelled_job_ends_the_build_unless_another_waits_for_it(here: Here) -> None:
    mine, theirs = submitted(here), submitted(here, owner=Owner("alice"))
    claim = claimed(here)
    assert here.jobs.cancel("alice", mine.id) is None
    cancelled = here.jobs.cancel("local", mine.id)
    assert cancelled is not None
    assert cancelled.state is State.CANCELLED
    assert here.leases.renew(claim, None)
    assert here.jobs.cancel("alice", theirs.id) is not None
    assert not here.leases.renew(claim, None)
    assert not here.leases.finish(claim, Made(ARTIFACT))
    assert state(here, theirs) is State.CANCELLED
    assert submitted(here).state is State.WAITING
    assert here.leases.finish(claimed(here), Made(ARTIFACT))
    assert not here.jobs.may_read("alice", ARTIFACT)
    assert here.jobs.may_read("local", ARTIFACT)


def test_a_job_that_ended_is_not_cancelled(here: Here) -> None:
    job = submitted(here)
    here.leases.finish(claimed(here), Made(ARTIFACT))
    kept = here.jobs.cancel("local", job.id)
    assert kept is not None
    assert kept.state is State.DONE


def test_quotas(here: Here) -> None:
    owner = Owner("alice", Quota(waiting=2, day=3))
    submitted(here, "a", owner)
    submitted(here, "b", owner)
    submitted(here, "b")  # of another
    with pytest.raises(QuotaExceeded, match="alice has 2 jobs that have not ended, and may have 2"):
        submitted(here, "c", owner)
    for _ in range(2):
        here.leases.finish(claimed(here), Made(ARTIFACT))
    submitted(here, "c", owner)
    with pytest.raises(QuotaExceeded, match="alice submitted 3 jobs within a day, and may submit 3"):
        here.jobs.check_quota(owner)
    later(here, 86_401.0)
    here.jobs.check_quota(owner)


def test_databases_that_can_not_be_used(tmp_path: Path) -> None:
    for url, message in (
        ("nonsense", "URL can't be used"),
        ("nosuch://x", "URL can't be used"),
        ("mysql://x/y", "URL can't be used: write sqlite:///FILE or postgresql://..., not mysql"),
        (f"sqlite:///{tmp_path}/no/folder.db", "the database can't be used"),
    ):
        with pytest.raises(BadInput, match=message):
            Database(url)
    url = f"sqlite:///{tmp_path}/newer.db"
    database = Database(url)
    with database.writing() as connection:
        connection.execute(META.update().values(value="99"))
    database.close()
    with pytest.raises(BadInput, match="has the schema 99, and this version of Tilewright reads 1"):
        Database(url)
