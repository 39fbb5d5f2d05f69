"""What every `IHeartbeatPolicy` promises: arithmetic, and therefore tried without any time passing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from muxws_green.errors import HeartbeatTimeoutError
from muxws_green.interfaces import IHeartbeat, IHeartbeatPolicy
from muxws_green.testing.contracts.promises import expect, keep

#: How many looks a policy may take to find out that a remote that never speaks is dead.
MAX_LOOKS: Final = 10_000
#: How many pings a remote answers that must not be found dead.
_ANSWERED = 100
#: A time to begin at that is not 0.
_START = 1000.0
_AGES = 1_000_000.0


def check_heartbeat_policy(policy: IHeartbeatPolicy) -> None:
    """Check that a heartbeat policy keeps the contracts of `IHeartbeatPolicy` and `IHeartbeat`.

    Args:
        policy: The policy; one that never pings or never gives up is none.

    Raises:
        AssertionError: It breaks a promise; the message says which, and how.
    """
    keep(PROMISES, lambda: nullcontext(policy))


def _start(policy: IHeartbeatPolicy, now: float = _START) -> IHeartbeat:
    numbers = count(1)
    return policy.start(now, lambda: f"nonce {next(numbers)}")


def _due(beat: IHeartbeat) -> float:
    """When to look, for who has just looked and told nothing since."""
    due = beat.due()
    if due is None:
        raise AssertionError("due is None, though nothing is to be expected that would make it look again")
    return due


@dataclass
class _Life:
    """What a policy does about one remote, as (time, nonce), and when it finds it dead."""

    pings: list[tuple[float, str]] = field(default_factory=list)
    died: float | None = None
    error: HeartbeatTimeoutError | None = None


def _live(
    beat: IHeartbeat,
    after: Callable[[float, str | None], None] | None = None,
    *,
    before: Callable[[float], None] | None = None,
    looks: int = MAX_LOOKS,
) -> _Life:
    """Look whenever it is due, so many times or until the remote is dead.

    Args:
        beat: One that has just been started.
        after: Called after each look, with its time and the nonce if there is one.
        before: Called before each look, with its time.
        looks: How many times at most.
    """
    life = _Life()
    now = _START
    for _ in range(looks):
        if before is not None:
            before(now)
        try:
            nonce = beat.look(now)
        except HeartbeatTimeoutError as error:
            life.died, life.error = now, error
            return life
        if nonce is not None:
            life.pings.append((now, nonce))
        if after is not None:
            after(now, nonce)
        due = _due(beat)
        expect(due > now, f"after a look at {now!r} it is due at {due!r} again: time would stand still")
        now = due
    return life


def _answering(policy: IHeartbeatPolicy) -> _Life:
    """The life of a remote that answers every ping at once."""
    beat = _start(policy)

    def answer(now: float, nonce: str | None) -> None:
        if nonce is not None:
            beat.received(now)

    return _live(beat, answer, looks=10 * _ANSWERED)


def pings(policy: IHeartbeatPolicy) -> None:
    """A remote is pinged, each time with a str of its own."""
    silent = _live(_start(policy))
    expect(len(silent.pings) > 0, "it was not")
    for life in (silent, _answering(policy)):
        nonces = [nonce for _, nonce in life.pings]
        expect(all(isinstance(nonce, str) and nonce for nonce in nonces), f"the nonces were {nonces[:5]!r}")
        expect(len(set(nonces)) == len(nonces), f"a nonce was used twice among {nonces[:5]!r}")


def finds_the_dead(policy: IHeartbeatPolicy) -> None:
    """A remote that answers nothing is found dead with a HeartbeatTimeoutError of code 1006."""
    life = _live(_start(policy))
    if life.error is None:
        raise AssertionError(f"it was alive after {MAX_LOOKS} looks")
    expect(life.error.code == 1006, f"the code was {life.error.code}")


def spares_who_answers(policy: IHeartbeatPolicy) -> None:
    """A remote that answers every ping at once lives, and is pinged again and again."""
    life = _answering(policy)
    expect(life.died is None, f"it was found dead after {len(life.pings)} pings that it had answered")
    expect(len(life.pings) >= _ANSWERED, f"it was pinged {len(life.pings)} times in {10 * _ANSWERED} looks")


def spares_who_was_not_asked(policy: IHeartbeatPolicy) -> None:
    """A look that comes much too late finds nobody dead who has not been asked."""
    beat = _start(policy)
    try:
        beat.look(_START + _AGES)
    except HeartbeatTimeoutError as error:
        raise AssertionError(f"the first look, {_AGES} seconds late, raised {error!r}") from error


def may_be_asked_again(policy: IHeartbeatPolicy) -> None:
    """Looking again at the same time asks for no second ping, and kills nobody."""
    once = _live(_start(policy))
    beat = _start(policy)

    def look_again(now: float, nonce: str | None) -> None:
        for _ in range(10):
            try:
                again = beat.look(now)
            except HeartbeatTimeoutError as error:
                raise AssertionError(f"the remote was dead at the next look: {error!r}") from error
            expect(again is None, f"a ping with {again!r} was asked for")

    often = _live(beat, look_again)
    times = [when for when, _ in once.pings], [when for when, _ in often.pings]
    same = times[0] == times[1] and once.died == often.died
    expect(same, f"it was pinged at {times[1]!r} and died at {often.died!r} in place of {times[0]!r} and {once.died!r}")


def believes_what_came_late(policy: IHeartbeatPolicy) -> None:
    """A verdict changes nothing: it can be heard again, and what is received then saves the remote."""
    beat = _start(policy)
    life = _live(beat)
    assert life.died is not None
    try:
        beat.look(life.died)
    except HeartbeatTimeoutError:
        pass
    else:
        raise AssertionError("the second look at the same time did not raise")
    beat.received(life.died)
    try:
        beat.look(life.died)
    except HeartbeatTimeoutError as error:
        raise AssertionError(f"it was dead though something had been received: {error!r}") from error


def waits_for_what_leaves(policy: IHeartbeatPolicy) -> None:
    """While the ping, or bytes before it, are still leaving, nobody dies; afterwards they do."""
    usual = _live(_start(policy))
    assert usual.died is not None
    beat = _start(policy)
    until = _START + 3 * (usual.died - _START)

    def leave(now: float) -> None:
        if now < until:
            beat.leaving(now)

    life = _live(beat, before=leave)
    if life.died is None:
        raise AssertionError("the remote was never found dead, though nothing left any more")
    expect(life.died >= until, f"it was found dead at {life.died!r}, while bytes were leaving until {until!r}")


def tells_when_to_look(policy: IHeartbeatPolicy) -> None:
    """What is received, sent or leaving never makes it due earlier."""
    for name in ("received", "sent", "leaving"):
        beat = _start(policy)

        def tell(now: float, nonce: str | None, name: str = name, beat: IHeartbeat = beat) -> None:
            before = beat.due()
            getattr(beat, name)(now)
            after = beat.due()
            earlier = before is not None and (after is not None and after < before)
            expect(not earlier, f"{name} at {now!r} made it due at {after!r} in place of {before!r}")

        _live(beat, tell, looks=_ANSWERED)


def connections_are_apart(policy: IHeartbeatPolicy) -> None:
    """A policy serves many connections, and what happens on one is nothing to another."""
    alone = _live(_start(policy))
    first, second = _start(policy), _start(policy)

    def also(now: float, nonce: str | None) -> None:
        second.received(now)
        second.sent(now)

    beside = _live(first, also)
    same = (alone.pings, alone.died) == (beside.pings, beside.died)
    expect(same, f"it was pinged {len(beside.pings)} times and died at {beside.died!r} beside another connection")


def time_is_relative(policy: IHeartbeatPolicy) -> None:
    """Only differences of time count."""
    beat, later = _start(policy), _start(policy, _START + 4096.0)
    now = _START
    for _ in range(_ANSWERED):
        outcomes: list[bool | None] = []
        for each, shift in ((beat, 0.0), (later, 4096.0)):
            try:
                outcomes.append(each.look(now + shift) is not None)
            except HeartbeatTimeoutError:
                outcomes.append(None)
        expect(outcomes[0] == outcomes[1], f"{now - _START} seconds after its start it did something else later")
        if outcomes[0] is None:
            return
        due, due_later = _due(beat), _due(later) - 4096.0
        expect(abs(due - due_later) < 1e-6, f"it was due at {due!r}, and later at {due_later!r}")
        now = max(due, due_later)


#: Each is tried on connections of its own.
PROMISES: Final = (
    pings,
    finds_the_dead,
    spares_who_answers,
    spares_who_was_not_asked,
    may_be_asked_again,
    believes_what_came_late,
    waits_for_what_leaves,
    tells_when_to_look,
    connections_are_apart,
    time_is_relative,
)
