"""Who may use which device, and until when: a state machine without a clock, a socket or a thread of its own.

A device is leased whole, to one request at a time. Of the requests that wait for it, the one with the highest priority
gets it; of several, the one whose user has used devices for the least time lately; of several, the first. A lease ends
when it is given back, when its client or its device is gone, and at its end, which the server sets.

All times are seconds on one clock, given by the caller.
"""

import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum

from tilewright.fleet.inventory import Inventory

MOST_LOSSES = 3
"""Leases in a row that a device loses before it is a suspect."""
SUSPECT_SECONDS = 300.0
"""How long it is one, unless it finishes a job before."""
SUSPECT_WAIT = 10.0
"""Seconds after which who waits gets a suspect: others may be busy for long, or hang and not yet be known as gone."""
UNSEEN_SECONDS = 30.0
"""A request that nobody asks for any more is dropped after that."""
HALF_LIFE = 3600.0
"""Seconds after which use counts half."""
_REMEMBERED = 1024
"""Ended leases whose reason is known."""


class Ending(Enum):
    """Why a lease has ended."""

    RETURNED = "returned"
    LATE = "late"
    """Its time was up."""
    LOST = "lost"
    """The device is gone."""
    ABANDONED = "abandoned"
    """The client is gone."""
    UNKNOWN = "unknown"
    """The scheduler has been restarted since, or the lease never was."""


@dataclass(frozen=True, slots=True)
class Request:
    """``client``: the connection it came by; ``user``: whom its use is counted for; ``seconds``: how long it wants the
    device."""

    id: str
    client: str
    user: str
    key: str
    priority: int = 0
    seconds: float = float("inf")


@dataclass(frozen=True, slots=True)
class Lease:
    """``address``: of the device; ``begin`` and ``end``: when it has begun, and when it ends at the latest."""

    id: str
    request: Request
    address: str
    device: Inventory
    begin: float
    end: float


@dataclass(slots=True)
class Member:
    """A device of the fleet."""

    address: str
    device: Inventory
    lease: Lease | None = None


@dataclass(slots=True)
class Health:
    """Of a device, by its name: survives that it leaves and joins again."""

    finished: int = 0
    """Jobs."""
    lost: int = 0
    """Leases that ended because it was gone, or failed."""
    in_a_row: int = 0
    suspect_until: float = float("-inf")


@dataclass(slots=True)
class _Waiting:
    request: Request
    number: int
    since: float
    seen: float


@dataclass(slots=True)
class _Use:
    seconds: float = 0.0
    at: float = 0.0

    def by(self, now: float) -> float:
        return self.seconds * 0.5 ** ((now - self.at) / HALF_LIFE)


@dataclass(frozen=True, slots=True)
class Queued:
    """A request that waits, for whoever looks."""

    key: str
    user: str
    priority: int
    seconds: float


Tell = Callable[[Lease, bool], None]
"""Is told of each lease: when it begins (True), and when it has ended."""


@dataclass(slots=True)
class Leases:
    """``most_seconds``: maximum of a lease."""

    most_seconds: float
    tell: Tell
    members: dict[str, Member] = field(default_factory=dict[str, Member])
    health: dict[str, Health] = field(default_factory=dict[str, Health])
    _waiting: dict[str, _Waiting] = field(default_factory=dict[str, _Waiting])
    _leases: dict[str, Lease] = field(default_factory=dict[str, Lease])
    _ended: "OrderedDict[str, Ending]" = field(default_factory=OrderedDict[str, Ending])
    _used: dict[str, _Use] = field(default_factory=dict[str, _Use])
    _number: int = 0

    # --- devices --------------------------------------------------------------------------------------------------

    def join(self, address: str, device: Inventory, now: float) -> None:
        """A device is there."""
        self.members[address] = Member(address, device)
        self.health.setdefault(device.name, Health())
        self._grant(now)

    def leave(self, address: str, now: float) -> None:
        """A device is gone; whoever had it has lost it."""
        member = self.members.pop(address, None)
        if member is not None and member.lease is not None:
            self._blame(member.device, now)
            self._end(member.lease, Ending.LOST, now)

    def matching(self, key: str) -> list[Inventory]:
        """The devices that ``key`` means, busy or not."""
        return [member.device for member in self.members.values() if member.device.answers_to(key)]

    # --- requests and leases --------------------------------------------------------------------------------------

    def request(self, request: Request, now: float) -> Lease | None:
        """The lease of a request; None while it waits. To be asked again, at least every ``UNSEEN_SECONDS``."""
        granted = self._granted(request.id)
        if granted is None:
            self._number += 1
            waiting = self._waiting.setdefault(request.id, _Waiting(request, self._number, now, now))
            waiting.seen = now
            self._grant(now)
            granted = self._granted(request.id)
        return granted

    def withdraw(self, request: str) -> None:
        """A request is not wanted any more."""
        self._waiting.pop(request, None)

    def keep(self, lease: str, finished: int) -> Ending | None:
        """Why a lease has ended; None if it has not. ``finished``: jobs that it has done since this was asked last."""
        found = self._leases.get(lease)
        if found is None:
            return self._ended.get(lease, Ending.UNKNOWN)
        if finished:
            health = self.health[found.device.name]
            health.finished += finished
            health.in_a_row = 0
            health.suspect_until = float("-inf")
        return None

    def is_wanted(self, lease: str, now: float) -> bool:
        """Whether somebody waits who would get its device if it were given back now."""
        held = self._leases[lease]
        rivals = [w for w in self._waiting.values() if held.device.answers_to(w.request.key)]
        return any(
            (-w.request.priority, self.used(w.request.user, now))
            < (-held.request.priority, self.used(held.request.user, now))
            for w in rivals
            if w.request.user != held.request.user or w.request.priority > held.request.priority
        )

    def give_back(self, lease: str, now: float, *, failed: bool = False) -> None:
        """End a lease. ``failed``: its device did not answer in time."""
        found = self._leases.get(lease)
        if found is None:
            return
        if failed:
            self._blame(found.device, now)
        self._end(found, Ending.RETURNED, now)
        self._grant(now)

    def forget(self, client: str, now: float) -> None:
        """A client is gone, with all it asked for and had."""
        for waiting in [w for w in self._waiting.values() if w.request.client == client]:
            del self._waiting[waiting.request.id]
        for lease in [held for held in self._leases.values() if held.request.client == client]:
            self._end(lease, Ending.ABANDONED, now)
        self._grant(now)

    def expire(self, now: float) -> None:
        """End the leases whose time is up, and drop requests that nobody asks for."""
        for lease in [held for held in self._leases.values() if held.end <= now]:
            self._end(lease, Ending.LATE, now)
        for waiting in [w for w in self._waiting.values() if w.seen + UNSEEN_SECONDS < now]:
            del self._waiting[waiting.request.id]
        self._grant(now)

    # --- for who looks --------------------------------------------------------------------------------------------

    def queue(self, now: float) -> list[Queued]:
        """The requests that wait, the first to come first."""
        found = sorted(self._waiting.values(), key=lambda w: w.number)
        return [Queued(w.request.key, w.request.user, w.request.priority, now - w.since) for w in found]

    def used(self, user: str, now: float) -> float:
        """The seconds for which a user has used devices lately, present leases included."""
        held = sum(now - lease.begin for lease in self._leases.values() if lease.request.user == user)
        known = self._used.get(user)
        return held + (0.0 if known is None else known.by(now))

    # --- inside ---------------------------------------------------------------------------------------------------

    def _granted(self, request: str) -> Lease | None:
        return next((lease for lease in self._leases.values() if lease.request.id == request), None)

    def _grant(self, now: float) -> None:
        """Lease all free devices for which somebody waits: the one that has failed least first."""
        for member in sorted(self.members.values(), key=lambda member: self._order(member, now)):
            if member.lease is None:
                fit = [waiting for waiting in self._waiting.values() if self._may_have(waiting, member, now)]
                if fit:
                    self._begin(member, self._first(fit, now).request, now)

    def _order(self, member: Member, now: float) -> tuple[bool, int, str]:
        return self._is_suspect(member, now), self.health[member.device.name].in_a_row, member.device.name

    def _may_have(self, waiting: _Waiting, member: Member, now: float) -> bool:
        """Whether a request means this device. A suspect is better than nothing, but no better: it may be innocent, as
        when power fails again and again."""
        key = waiting.request.key
        if not member.device.answers_to(key):
            return False
        if not self._is_suspect(member, now) or now - waiting.since >= SUSPECT_WAIT:
            return True
        return all(self._is_suspect(other, now) for other in self.members.values() if other.device.answers_to(key))

    def _is_suspect(self, member: Member, now: float) -> bool:
        return self.health[member.device.name].suspect_until > now

    def _first(self, waiting: Iterable[_Waiting], now: float) -> _Waiting:
        return min(waiting, key=lambda w: (-w.request.priority, self.used(w.request.user, now), w.number))

    def _begin(self, member: Member, request: Request, now: float) -> None:
        del self._waiting[request.id]
        end = now + min(request.seconds, self.most_seconds)
        lease = Lease(secrets.token_hex(16), request, member.address, member.device, now, end)
        self._leases[lease.id] = member.lease = lease
        self.tell(lease, True)

    def _end(self, lease: Lease, ending: Ending, now: float) -> None:
        del self._leases[lease.id]
        self._ended[lease.id] = ending
        while len(self._ended) > _REMEMBERED:
            self._ended.popitem(last=False)
        used = self._used.get(lease.request.user, _Use())
        self._used[lease.request.user] = _Use(used.by(now) + now - lease.begin, now)
        member = self.members.get(lease.address)
        if member is not None and member.lease is lease:
            member.lease = None
        self.tell(lease, False)

    def _blame(self, device: Inventory, now: float) -> None:
        health = self.health[device.name]
        health.lost += 1
        health.in_a_row += 1
        if health.in_a_row >= MOST_LOSSES:
            health.suspect_until = now + SUSPECT_SECONDS
            health.in_a_row = 0
