"""Who gets a device: priorities, fairness, ends of leases; brute force over random histories."""

import random
from collections import Counter

import pytest

from tilewright.fleet.inventory import Inventory
from tilewright.fleet.leases import (
    MOST_LOSSES,
    SUSPECT_SECONDS,
    SUSPECT_WAIT,
    UNSEEN_SECONDS,
    Ending,
    Lease,
    Leases,
    Request,
)


def board(name: str, key: str = "board") -> Inventory:
    return Inventory(name, key, "x86_64", 4, 1 << 30, "Linux", "", "0")


def leases(*names: str, most: float = 100.0) -> tuple[Leases, list[tuple[str, bool]]]:
    """Devices whose addresses are their names, and what they were told."""
    told: list[tuple[str, bool]] = []

    def tell(lease: Lease, begins: bool) -> None:
        told.append((lease.address, begins))

    made = Leases(most, tell)
    for name in names:
        made.join(name, board(name), 0.0)
    return made, told


def ask(
    of: Leases, name: str, user: str = "ann", key: str = "board", priority: int = 0, now: float = 0.0
) -> Lease | None:
    return of.request(Request(name, f"client of {user}", user, key, priority), now)


def test_a_device_is_leased_whole_by_name_or_key() -> None:
    made, told = leases("a", "b")
    first, second = ask(made, "1", key="b"), ask(made, "2")
    assert first is not None and second is not None
    assert (first.device.name, second.device.name) == ("b", "a")
    assert ask(made, "1", key="b") is first
    assert ask(made, "3") is None
    assert ask(made, "4", key="unknown") is None
    made.give_back(first.id, 5.0)
    third = ask(made, "3", now=5.0)
    assert third is not None and third.device.name == "b"
    assert told == [("b", True), ("a", True), ("b", False), ("b", True)]


def test_priority_goes_first_then_who_has_used_least_then_who_came_first() -> None:
    made, _ = leases("a")
    held = ask(made, "0", user="ann")
    assert held is not None
    for name, user, priority in [("1", "ann", 0), ("2", "bob", 0), ("3", "cid", 0), ("4", "ann", 1)]:
        assert ask(made, name, user, priority=priority, now=1.0) is None
    assert made.is_wanted(held.id, 2.0)
    order: list[str] = []
    now = 10.0
    for _ in range(4):
        made.give_back(held.id, now)
        found = next(lease for name in "1234" if (lease := ask(made, name, now=now)) and name not in order)
        order.append(found.request.id)
        held, now = found, now + 10.0
    assert order == ["4", "2", "3", "1"]


def test_users_who_ask_without_end_share_alike() -> None:
    made, _ = leases("a", "b", "c")
    used: Counter[str] = Counter()
    held: dict[str, tuple[str, Lease]] = {}
    names = {f"{user}{place}": user for user, count in (("ann", 50), ("bob", 3)) for place in range(count)}
    generator = random.Random(0)
    for step in range(600):
        now = float(step)
        for name, user in names.items():
            lease = ask(made, f"{name}:{step if name in held else 0}", user, now=now) if name not in held else None
            if lease is not None:
                held[name] = (user, lease)
        for name, (user, lease) in list(held.items()):
            used[user] += 1
            if generator.random() < 0.2:
                made.give_back(lease.id, now + 1)
                del held[name]
    assert 0.75 < used["ann"] / used["bob"] < 1.33


@pytest.mark.parametrize("wanted", [10.0, 1e9])
def test_the_server_ends_a_lease(wanted: float) -> None:
    made, told = leases("a", most=50.0)
    held = made.request(Request("1", "c", "ann", "board", 0, wanted), 0.0)
    assert held is not None
    assert held.end == min(wanted, 50.0)
    made.expire(held.end - 0.1)
    assert made.keep(held.id, 0) is None
    made.expire(held.end)
    assert made.keep(held.id, 0) is Ending.LATE
    assert told == [("a", True), ("a", False)]


def test_who_is_gone_holds_nothing() -> None:
    made, _ = leases("a", "b")
    one, two = ask(made, "1"), ask(made, "2", user="bob")
    assert one is not None and two is not None
    assert ask(made, "3") is None
    made.leave(one.address, 1.0)
    assert made.keep(one.id, 0) is Ending.LOST
    made.forget("client of bob", 2.0)
    assert made.keep(two.id, 0) is Ending.ABANDONED
    assert ask(made, "3", now=2.0) is not None
    assert ask(made, "4", now=2.0) is None
    made.expire(3.0 + UNSEEN_SECONDS)
    assert made.queue(40.0) == []
    assert made.keep("never granted", 0) is Ending.UNKNOWN


def test_a_device_that_is_lost_again_and_again_is_a_suspect() -> None:
    """It is leased last: for some time to nobody who could have another one, also if that is busy."""
    made, _ = leases("a", "b", most=1e9)
    lose(made, "a")
    first = ask(made, "first", now=10.0)
    assert first is not None
    assert first.address == "b"
    assert ask(made, "second", now=10.0) is None
    assert ask(made, "second", now=9.9 + SUSPECT_WAIT) is None
    second = ask(made, "second", now=10.0 + SUSPECT_WAIT)
    assert second is not None
    assert second.address == "a"


@pytest.mark.parametrize(
    ("finished", "now", "is_leased"), [(0, 6.0, False), (0, MOST_LOSSES + SUSPECT_SECONDS, True), (1, 6.0, True)]
)
def test_a_suspect_is_none_when_it_has_finished_a_job_or_long_after(finished: int, now: float, is_leased: bool) -> None:
    made, _ = leases("a", "b", most=1e9)
    lose(made, "a")
    held, other = ask(made, "held", key="a", now=5.0), ask(made, "other", now=5.0)
    assert held is not None and other is not None
    made.keep(held.id, finished)
    made.give_back(held.id, 5.5)
    assert (ask(made, "next", now=now) is not None) is is_leased


def test_suspects_are_better_than_nothing() -> None:
    """As when power fails again and again, everywhere; and for who wants this one."""
    made, _ = leases("a", "b", most=1e9)
    lose(made, "a")
    named = ask(made, "named", key="a", now=5.0)
    assert named is not None
    made.give_back(named.id, 5.0)
    lose(made, "b")
    assert {lease.address for number in range(2) if (lease := ask(made, str(number), now=10.0))} == {"a", "b"}


def lose(made: Leases, name: str) -> None:
    for losses in range(MOST_LOSSES):
        assert ask(made, f"{name} {losses}", key=name, now=float(losses)) is not None
        made.leave(name, float(losses))
        made.join(name, board(name), float(losses))


def test_a_device_that_finishes_jobs_is_none() -> None:
    made, _ = leases("a", most=1e9)
    for losses in range(3 * MOST_LOSSES):
        held = ask(made, str(losses), now=float(losses))
        assert held is not None
        assert made.keep(held.id, 1) is None
        made.leave("a", float(losses))
        made.join("a", board("a"), float(losses))
    assert made.health["a"].finished == 3 * MOST_LOSSES


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_no_device_is_leased_twice(seed: int) -> None:
    """Against a model that knows only what devices were told."""
    generator = random.Random(seed)
    holding: dict[str, str] = {}

    def tell(lease: Lease, begins: bool) -> None:
        if begins:
            assert lease.address not in holding
            holding[lease.address] = lease.id
        else:
            assert holding.pop(lease.address) == lease.id

    made = Leases(30.0, tell)
    given: list[Lease] = []
    for step in range(400):
        now, name = float(step), generator.choice("abcd")
        match generator.randrange(6):
            case 0 if name not in made.members:
                made.join(name, board(name, generator.choice(["x", "y"])), now)
            case 1:
                made.leave(name, now)
            case 2 if given:
                made.give_back(generator.choice(given).id, now, failed=generator.random() < 0.1)
            case 3:
                made.forget(generator.choice(["client of ann", "client of bob"]), now)
            case 4:
                made.expire(now)
            case _:
                user, key = generator.choice(["ann", "bob"]), generator.choice("xya")
                found = ask(made, str(generator.randrange(50)), user, key, generator.randrange(3), now)
                if found is not None:
                    assert holding[found.address] == found.id
                    assert found.device.answers_to(key) or found.request.key != key
                    given.append(found)
        leased = {member.address: member.lease.id for member in made.members.values() if member.lease is not None}
        assert leased == holding
