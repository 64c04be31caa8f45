"""Every interleaving of the pool's protocol (``runtime.abi``), on a model of it: each step is one access to memory.

The stress test runs the real code, and can't show that a rare interleaving is right; this can, for few threads and
sequentially consistent memory. What is checked: each chunk of each job runs exactly once, with the job's own function;
a job is over only when its chunks are; and the caller never sleeps for ever. Two broken variants must be found out.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest

JOBS = (3, 1, 2)
"""Chunks of the jobs that the caller runs one after the other. Job numbers stand for their functions."""


@dataclass(frozen=True)
class Part:
    """The word of a part: chunks ``begin .. end - 1`` of the job of an epoch are left."""

    epoch: int = 0
    begin: int = 0
    end: int = 0


@dataclass(frozen=True)
class Thread:
    """Program counter and registers."""

    at: str
    epoch: int = 0
    parts: int = 0
    passed: int = 0
    part: Part = Part()
    fn: int = -1
    ran: int = 0
    left: int = 0


@dataclass(frozen=True)
class State:
    """Shared memory, the threads (the first is the caller), and what has run so far."""

    threads: tuple[Thread, ...]
    epoch: int = 0
    parts: int = 0
    words: tuple[Part, ...] = ()
    fns: tuple[int, ...] = ()
    pending: int = 0
    waiter: bool = False
    job: int = 0
    ran: frozenset[tuple[int, int]] = field(default_factory=frozenset)

    def moved(self, which: int, thread: Thread, **shared: object) -> "State":
        threads = (*self.threads[:which], thread, *self.threads[which + 1 :])
        return replace(self, threads=threads, **shared)

    def with_part(self, number: int, part: Part) -> tuple[Part, ...]:
        return (*self.words[:number], part, *self.words[number + 1 :])


class Wrong(Exception):
    pass


def drain(s: State, i: int, epochs: bool) -> State:
    """One step of claiming and running chunks; ends at ``drained``."""
    t = s.threads[i]
    number = (i + t.passed) % t.parts
    own = number == i
    match t.at:
        case "look":
            part = s.words[number]
            if part.begin < part.end and (part.epoch == t.epoch or not epochs):
                return s.moved(i, replace(t, at="fn", part=part))
            return s.moved(i, replace(t, at="look" if t.passed + 1 < t.parts else "drained", passed=t.passed + 1))
        case "fn":
            return s.moved(i, replace(t, at="claim", fn=s.fns[number]))
        case "claim":
            now, seen = s.words[number], t.part
            if (now.begin, now.end) != (seen.begin, seen.end) or (epochs and now.epoch != seen.epoch):
                return s.moved(i, replace(t, at="look"))
            after = replace(now, begin=now.begin + 1) if own else replace(now, end=now.end - 1)
            return s.moved(i, replace(t, at="run"), words=s.with_part(number, after))
        case _:
            chunk = (t.fn, t.part.begin if own else t.part.end - 1)
            if chunk in s.ran or t.fn != s.job or not 0 <= chunk[1] < JOBS[s.job]:
                raise Wrong(f"chunk {chunk} during job {s.job}")
            return s.moved(i, replace(t, at="look", ran=t.ran + 1), ran=s.ran | {chunk})


def caller(s: State) -> State | None:
    """One step of the caller outside ``drain``; None if it sleeps or has finished."""
    t = s.threads[0]
    match t.at:
        case "start":
            parts = min(len(s.threads), JOBS[s.job])
            return s.moved(0, Thread("store fn", s.epoch + 1, parts), pending=JOBS[s.job])
        case "store fn":
            fns = (*s.fns[: t.passed], s.job, *s.fns[t.passed + 1 :])
            return s.moved(0, replace(t, at="store part"), fns=fns)
        case "store part":
            begin, end = (n * JOBS[s.job] // t.parts for n in (t.passed, t.passed + 1))
            words = s.with_part(t.passed, Part(t.epoch, begin, end))
            at = "store fn" if t.passed + 1 < t.parts else "publish"
            return s.moved(0, replace(t, at=at, passed=t.passed + 1), words=words)
        case "publish":
            return s.moved(0, replace(t, at="look", passed=0), epoch=t.epoch, parts=t.parts)
        case "drained":
            left = s.pending - t.ran
            return s.moved(0, replace(t, at="announce" if left else "finish"), pending=left)
        case "announce":
            return s.moved(0, replace(t, at="check"), waiter=True)
        case "check":
            return s.moved(0, replace(t, at="sleep" if s.pending else "withdraw", left=s.pending))
        case "sleep":  # the futex compares and falls asleep in one step
            return s.moved(0, replace(t, at="asleep" if s.pending == t.left else "check"))
        case "withdraw":
            return s.moved(0, replace(t, at="finish"), waiter=False)
        case "finish":
            if len([1 for job, _ in s.ran if job == s.job]) != JOBS[s.job]:
                raise Wrong(f"job {s.job} ended too early")
            last = s.job + 1 == len(JOBS)
            return s.moved(0, replace(t, at="end" if last else "start"), job=s.job + (not last))
        case _:
            return None


def worker(s: State, i: int, wake: bool) -> State | None:
    """One step of a worker outside ``drain``; None if it would only look for the next job."""
    t = s.threads[i]
    match t.at:
        case "drained":
            if t.ran == 0:
                return None if s.epoch == t.epoch else s.moved(i, Thread("look", s.epoch, s.parts))
            left = s.pending - t.ran
            return s.moved(i, Thread("drained" if left else "waiter?", t.epoch), pending=left)
        case "waiter?":
            return s.moved(i, replace(t, at="wake" if s.waiter and wake else "drained"))
        case _:
            asleep = s.threads[0].at == "asleep"
            woken = s.moved(0, replace(s.threads[0], at="check")) if asleep else s
            return woken.moved(i, replace(t, at="drained"))


def steps(s: State, epochs: bool, wake: bool) -> Iterator[State]:
    for i, thread in enumerate(s.threads):
        if thread.at in ("look", "fn", "claim", "run"):
            yield drain(s, i, epochs)
        else:
            after = caller(s) if i == 0 else worker(s, i, wake)
            if after is not None:
                yield after


def explore(workers: int, epochs: bool = True, wake: bool = True) -> int:
    """Visit every state that can be reached; returns how many. Raises ``Wrong``."""
    threads = (Thread("start"), *(Thread("drained") for _ in range(workers)))
    start = State(threads, words=(Part(),) * len(threads), fns=(-1,) * len(threads))
    seen, todo = {start}, [start]
    while todo:
        state = todo.pop()
        following = list(steps(state, epochs, wake))
        if not following and state.threads[0].at != "end":
            raise Wrong("the caller sleeps for ever")
        for after in following:
            if after not in seen:
                seen.add(after)
                todo.append(after)
    return len(seen)


@pytest.mark.parametrize("workers", [0, 1, pytest.param(2, marks=pytest.mark.slow)])
def test_the_protocol(workers: int) -> None:
    assert explore(workers) > 20


def test_parts_without_an_epoch_are_found_out() -> None:
    with pytest.raises(Wrong, match="chunk"):
        explore(1, epochs=False)


def test_a_missing_wake_is_found_out() -> None:
    with pytest.raises(Wrong, match="for ever"):
        explore(1, wake=False)
