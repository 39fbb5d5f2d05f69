"""Our heartbeat policies keep the contract, and a double that breaks one promise of it is told so."""

from __future__ import annotations

import math
from itertools import count
from typing import ClassVar
from weakref import WeakSet

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muxws_green import CountingHeartbeat, HeartbeatTimeoutError, IdleHeartbeat
from muxws_green.protocol.liveness import IdleBeat
from muxws_green.testing.contracts import check_heartbeat_policy
from muxws_green.testing.contracts import heartbeat as suite
from tests.testing.contracts.doubles import Breaks, assert_all_are_broken, assert_rejected, breaks, every_double

DOUBLES: Breaks = {}

POLICY = IdleHeartbeat(20.0, 10.0)


class Broken(IdleBeat):
    """What a double is made of; it is its own policy's state."""

    def __init__(self, now, nonces) -> None:
        super().__init__(POLICY, now, nonces)
        self.began = now


@breaks(DOUBLES, suite.pings, "used twice")
class SaysTheSame(Broken):
    def look(self, now):
        return super().look(now) and "again"


@breaks(DOUBLES, suite.pings, "the nonces were")
class SaysNumbers(Broken):
    numbers = count()

    def look(self, now):
        return super().look(now) and next(self.numbers)


@breaks(DOUBLES, suite.pings, "time would stand still")
class StandsStill(Broken):
    def due(self):
        return self.began


@breaks(DOUBLES, suite.pings, "due is None")
class WaitsForWord(Broken):
    def due(self):
        return None


@breaks(DOUBLES, suite.pings, "it was not")
class NeverPings(Broken):
    def look(self, now):
        super().look(now)


@breaks(DOUBLES, suite.finds_the_dead, "it was alive after")
class NeverGivesUp(Broken):
    def look(self, now):
        try:
            return super().look(now)
        except HeartbeatTimeoutError:
            self.received(now)
            return None


@breaks(DOUBLES, suite.finds_the_dead, "the code was 1000")
class GivesAnotherCode(Broken):
    def look(self, now):
        try:
            return super().look(now)
        except HeartbeatTimeoutError as error:
            raise HeartbeatTimeoutError(str(error), code=1000) from None


@breaks(DOUBLES, suite.spares_who_answers, "it was found dead after")
class DoesNotListen(Broken):
    def received(self, now):
        pass


@breaks(DOUBLES, suite.spares_who_answers, "it was pinged")
class StopsAsking(Broken):
    answers = 0

    def received(self, now):
        super().received(now)
        self.answers += 1

    def look(self, now):
        if self.answers > 5:
            self.received(now)
        return super().look(now)


@breaks(DOUBLES, suite.spares_who_was_not_asked, "the first look")
class JudgesBySilence(Broken):
    def __init__(self, now, nonces) -> None:
        super().__init__(now, nonces)
        self.heard = now

    def received(self, now):
        super().received(now)
        self.heard = now

    def look(self, now):
        if now >= self.heard + 30.0 and not self._pinged:
            raise HeartbeatTimeoutError
        return super().look(now)


@breaks(DOUBLES, suite.may_be_asked_again, "was asked for")
class AsksAtEachLook(Broken):
    numbers = count()

    def look(self, now):
        return super().look(now) or f"more {next(self.numbers)}"


@breaks(DOUBLES, suite.may_be_asked_again, "dead at the next look")
class CountsLooks(Broken):
    looks = 0

    def look(self, now):
        self.looks += 1
        if self.looks > 10 and self._restarted == self.began:
            raise HeartbeatTimeoutError
        return super().look(now)


@breaks(DOUBLES, suite.may_be_asked_again, "in place of")
class IsPutOff(Broken):
    def look(self, now):
        if now == self._looked and self._pinged is not None:
            self._deadline += 1.0
        return super().look(now)


@breaks(DOUBLES, suite.believes_what_came_late, "though something had been received")
class IsStubborn(Broken):
    verdict = False

    def look(self, now):
        if self.verdict:
            raise HeartbeatTimeoutError
        try:
            return super().look(now)
        except HeartbeatTimeoutError:
            self.verdict = True
            raise


@breaks(DOUBLES, suite.believes_what_came_late, "did not raise")
class Forgets(Broken):
    def look(self, now):
        try:
            return super().look(now)
        except HeartbeatTimeoutError:
            self.received(now)
            raise


@breaks(DOUBLES, suite.waits_for_what_leaves, "while bytes were leaving")
class DoesNotWait(Broken):
    def leaving(self, now):
        pass


@breaks(DOUBLES, suite.waits_for_what_leaves, "never found dead")
class WaitsForEver(Broken):
    def leaving(self, now):
        self._deadline = now + 1e9


class Hurries(Broken):
    soon = math.inf

    def due(self):
        return min(self.soon, super().due())

    def look(self, now):
        self.soon = math.inf
        return super().look(now)


@breaks(DOUBLES, suite.tells_when_to_look, "sent at")
class HurriesAfterSending(Hurries):
    def sent(self, now):
        super().sent(now)
        self.soon = now + 1.0


@breaks(DOUBLES, suite.tells_when_to_look, "received at")
class HurriesAfterReceiving(Hurries):
    def received(self, now):
        super().received(now)
        self.soon = now + 1.0


@breaks(DOUBLES, suite.connections_are_apart, "beside another connection")
class Shares(Broken):
    everybody: ClassVar[WeakSet[Broken]] = WeakSet()

    def __init__(self, now, nonces) -> None:
        super().__init__(now, nonces)
        self.everybody.add(self)

    def received(self, now):
        for each in self.everybody:
            Broken.received(each, now)


@breaks(DOUBLES, suite.time_is_relative, "it was due at")
class LikesRoundTimes(Broken):
    def due(self):
        return math.ceil(super().due() / 7) * 7


@breaks(DOUBLES, suite.time_is_relative, "did something else later")
class AsksInTheMorning(Broken):
    def look(self, now):
        if self.began < 2000.0 or now < self.began + 10.0:
            return super().look(now)
        raise HeartbeatTimeoutError


class Policy:
    """Whose state is a double."""

    def __init__(self, state) -> None:
        self._state = state

    def start(self, now, nonces):
        return self._state(now, nonces)


@pytest.mark.parametrize(
    "policy",
    [IdleHeartbeat(), CountingHeartbeat(), IdleHeartbeat(0.1, 30.0), CountingHeartbeat(0.3, 0)],
    ids=lambda policy: repr(policy),
)
def test_ours_keep_it(policy):
    check_heartbeat_policy(policy)


seconds = st.floats(0.05, 100.0)


@given(st.builds(IdleHeartbeat, seconds, seconds) | st.builds(CountingHeartbeat, seconds, st.integers(0, 20)))
def test_ours_keep_it_whatever_they_are_told(policy):
    check_heartbeat_policy(policy)


@every_double(DOUBLES)
def test_a_broken_double_is_rejected(promise, double, complaint):
    assert_rejected(promise, complaint, lambda: check_heartbeat_policy(Policy(double)))


def test_every_promise_has_a_double_that_breaks_it():
    assert_all_are_broken(suite.PROMISES, DOUBLES)
