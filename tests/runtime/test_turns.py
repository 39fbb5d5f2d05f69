"""Who is due runs in the turn of whoever waits next, and nobody runs before anybody that would have come first."""

from __future__ import annotations

import random
import weakref

import gevent
import greenlet
import pytest
from gevent import getcurrent

from muxws_green.runtime.clock import default_clock
from muxws_green.runtime.turns import NOBODY, PASSES_A_LOOK, Turns, Waiter, turns_of
from muxws_green.runtime.waiting import Parking, WaitList
from muxws_green.testing import settle


@pytest.fixture
def hub():
    return gevent.get_hub()


@pytest.fixture
def turns(hub):
    return Turns(hub)


@pytest.fixture
def switches():
    """From which greenlet to which it was switched."""
    seen = []
    before = greenlet.settrace(lambda event, pair: seen.append(pair))
    yield seen
    greenlet.settrace(before)


def about_to_wait():
    waiter = Waiter()
    waiter.greenlet = getcurrent()
    return waiter


class Sleeper:
    """A greenlet that waits, and writes down what it was woken with."""

    def __init__(self, turns, log, name="sleeper"):
        self.turns, self.log, self.name = turns, log, name
        self.waiter = None
        self.greenlet = gevent.spawn(self.run)
        gevent.sleep(0)

    def run(self):
        self.waiter = about_to_wait()
        try:
            self.log.append((self.name, self.turns.wait()))
        finally:
            self.waiter.greenlet = None


def waits(turns, woken_after=0.001):
    """Have the caller wait, and somebody wake it later."""
    waiter = about_to_wait()
    timer = gevent.get_hub().loop.timer(woken_after)
    timer.start(waiter.resume, "later")
    try:
        return turns.wait()
    finally:
        waiter.greenlet = None
        timer.close()


def test_the_only_one_that_is_due_is_given_the_turn_directly(turns, switches):
    log = []
    sleeper = Sleeper(turns, log)
    turns.soon(sleeper.waiter.resume, "woken")
    del switches[:]
    assert waits(turns) == "later"
    assert switches[0] == (getcurrent(), sleeper.greenlet)
    assert log == [("sleeper", "woken")]


def test_nobody_is_switched_to_by_soon(turns, switches):
    sleeper = Sleeper(turns, [])
    del switches[:]
    turns.soon(sleeper.waiter.resume, None)
    assert not switches
    sleeper.greenlet.join()


def test_one_that_is_due_runs_from_the_hub_where_whoever_woke_it_waits_elsewhere(turns, hub, switches):
    log = []
    sleeper = Sleeper(turns, log)
    turns.soon(sleeper.waiter.resume, "woken")
    del switches[:]
    gevent.sleep(0)
    assert log == [("sleeper", "woken")]
    assert (hub, sleeper.greenlet) in switches


@pytest.mark.parametrize("queued_first", [True, False])
def test_nothing_is_passed_on_where_somebody_else_is_queued(turns, hub, switches, queued_first):
    log = []
    sleeper = Sleeper(turns, log)
    wakes = [
        lambda: hub.loop.run_callback(log.append, "another"),
        lambda: turns.soon(sleeper.waiter.resume, "woken"),
    ]
    for wake in wakes if queued_first else reversed(wakes):
        wake()
    del switches[:]
    waits(turns)
    assert switches[0] == (getcurrent(), hub)
    assert log == (["another", ("sleeper", "woken")] if queued_first else [("sleeper", "woken"), "another"])


def test_nothing_is_passed_on_while_somebody_in_the_hub_has_more_turns_to_give(turns, hub, switches):
    log = []
    sleeper = Sleeper(turns, log)
    turns.held = True
    turns.soon(sleeper.waiter.resume, "woken")
    del switches[:]
    waits(turns)
    assert switches[0] == (getcurrent(), hub)
    assert log == [("sleeper", "woken")]


def test_of_several_that_are_due_all_run_in_their_order(turns):
    log = []
    sleepers = [Sleeper(turns, log, name) for name in "abc"]
    for sleeper in sleepers:
        turns.soon(sleeper.waiter.resume, "woken")
    waits(turns)
    assert log == [(name, "woken") for name in "abc"]


def test_one_that_waits_no_more_is_not_switched_to(turns):
    log = []
    sleeper = Sleeper(turns, log)
    turns.soon(sleeper.waiter.resume, "woken")
    sleeper.waiter.greenlet = None
    assert waits(turns) == "later"
    assert not log
    sleeper.greenlet.kill()


def test_one_that_is_killed_before_its_turn_is_not_switched_to_again(turns):
    log = []
    sleeper = Sleeper(turns, log)
    turns.soon(sleeper.waiter.resume, "woken")
    sleeper.greenlet.kill()
    assert waits(turns) == "later"
    assert log == [("sleeper", "woken")]
    sleeper = Sleeper(turns, log)
    sleeper.greenlet.kill(block=False)
    turns.soon(sleeper.waiter.resume, "woken")
    assert waits(turns) == "later"
    assert len(log) == 1


def test_what_is_thrown_into_one_that_has_passed_its_turn_on_comes_out_of_its_wait(turns, switches):
    log = []
    sleeper = Sleeper(turns, log)

    def pass_on():
        turns.soon(sleeper.waiter.resume, "woken")
        with pytest.raises(ZeroDivisionError):
            turns.wait()
        log.append("thrown")

    passer = gevent.spawn(pass_on)
    gevent.sleep(0.001)
    assert log == [("sleeper", "woken")]
    assert (passer, sleeper.greenlet) in switches
    passer.kill(ZeroDivisionError)
    assert log[1:] == ["thrown"]


def test_two_that_wake_each_other_for_ever_do_not_keep_the_hub_from_its_timers(turns):
    waiters = {}
    counts = [0, 0]
    over = gevent.event.Event()

    def play(me):
        while not over.is_set():
            counts[me] += 1
            waiters[me] = about_to_wait()
            if 1 - me in waiters:
                turns.soon(waiters[1 - me].resume)
            turns.wait()
            waiters[me].greenlet = None

    players = [gevent.spawn(play, me) for me in (0, 1)]
    gevent.sleep(0.02)
    over.set()
    for waiter in waiters.values():
        turns.soon(waiter.resume)
    gevent.joinall(players, timeout=5, raise_error=True)
    assert all(player.dead for player in players)
    assert min(counts) > PASSES_A_LOOK


def test_only_so_many_turns_are_passed_on_between_two_looks_of_the_hub(turns, hub):
    """However many callbacks the hub runs in between."""
    waiters, looks = {}, []

    def play(me, rounds):
        for _ in range(rounds):
            waiters[me] = about_to_wait()
            if 1 - me in waiters:
                turns.soon(waiters[1 - me].resume, True)
            turns.wait()
            waiters[me].greenlet = None
        turns.soon(waiters[1 - me].resume, True)

    players = [gevent.spawn(play, me, 10 * PASSES_A_LOOK) for me in (0, 1)]

    def note(event, pair):
        if set(pair) == set(players):
            looks.append(hub.loop.iteration)

    before = greenlet.settrace(note)
    gevent.joinall(players, timeout=5, raise_error=True)
    greenlet.settrace(before)
    assert max(map(looks.count, looks)) == PASSES_A_LOOK


def test_one_that_has_passed_its_turn_on_keeps_nothing_of_whom_it_was_passed_to(turns):
    log = []
    passer = Waiter()

    def pass_on():
        sleeper = sleepers.pop()
        passer.greenlet = getcurrent()
        payload = Payload()
        gone.extend((weakref.ref(sleeper.greenlet), weakref.ref(payload)))
        turns.soon(sleeper.waiter.resume, payload)
        del sleeper, payload
        log.append(turns.wait())

    gone = []
    sleepers = [Sleeper(turns, log)]
    passing = gevent.spawn(pass_on)
    gevent.sleep(0.001)
    assert [name for name, _ in log] == ["sleeper"]
    del log[:]
    gevent.sleep(0)
    assert [ref() for ref in gone] == [None, None]
    # It still waits, and is woken as it would have been.
    turns.soon(passer.resume, "woken")
    passing.join(5)
    assert log == ["woken"]


class Payload:
    pass


def test_one_that_is_woken_before_it_waits_does_not_wait(turns):
    """What is called in between may let others run."""
    parking = Parking(gevent.get_hub(), default_clock)
    waits = WaitList(parking)

    def wake():
        waits.wake()
        gevent.sleep(0)
        gevent.sleep(0)

    parking.on_park = wake
    assert waits.wait(default_clock.now() + 5) is True


def test_a_loop_that_does_not_tell_who_is_queued_passes_nothing_on(hub, switches, monkeypatch):
    class Loop:
        run_callback = hub.loop.run_callback

    class Hub:
        loop = Loop()
        switch = hub.switch

    turns = Turns(Hub())
    log = []
    sleeper = Sleeper(turns, log)
    assert not turns.is_free()
    for _ in range(2):
        assert not turns.offer(sleeper.waiter.resume)
        waits(turns)
    turns.soon(sleeper.waiter.resume, "woken")
    del switches[:]
    waits(turns)
    assert switches[0] == (getcurrent(), hub)
    assert log == [("sleeper", "woken")]


def test_a_resume_that_finds_nobody_costs_only_the_way_to_the_hub(turns):
    calls = []
    assert turns.offer(lambda value: (calls.append(value), NOBODY)[1], "x")
    assert waits(turns) == "later"
    assert calls == ["x"]


def test_waits_are_counted_wherever_somebody_waits(turns):
    before = turns.waits
    waits(turns)
    after = turns.waits
    assert after > before
    turns.soon(lambda value: NOBODY)
    gevent.sleep(0)
    assert turns.waits > after


def test_a_hub_has_one(hub):
    assert turns_of(hub) is turns_of(hub)


class Play:
    """Greenlets that wake each other, wait, and yield, as a seed has it; what happened, in order."""

    def __init__(self, turns, seed, players):
        self.turns = turns
        self.random = random.Random(seed)
        self.log = []
        self.waiters = {}
        players = [gevent.spawn(self.play, number) for number in range(players)]
        while not all(player.dead for player in players):
            # Who waits at the end is woken by nobody else.
            for number in sorted(self.waiters):
                self.wake(number)
            settle()
        gevent.joinall(players, raise_error=True)

    def play(self, me):
        for _ in range(30):
            act = self.random.choice(["wake", "wake", "wait", "yield", "queue"])
            self.log.append((me, act))
            if act == "wake" and self.waiters:
                self.wake(self.random.choice(sorted(self.waiters)))
            elif act == "wait":
                self.waiters[me] = waiter = about_to_wait()
                value = self.turns.wait()
                waiter.greenlet = None
                self.log.append((me, "woken", value))
            elif act == "yield":
                gevent.sleep(0)
            elif act == "queue":
                gevent.get_hub().loop.run_callback(self.log.append, (me, "queued"))

    def wake(self, number):
        self.turns.soon(self.waiters.pop(number).resume, number)


@pytest.mark.parametrize("players", [2, 3, 5])
def test_the_order_is_that_of_the_hub(hub, players, switches):
    passed = 0
    for seed in range(40):
        through_hub = Turns(hub)
        through_hub._queue = None
        through_hub._crowded = True
        expected = Play(through_hub, seed, players).log
        del switches[:]
        assert Play(Turns(hub), seed, players).log == expected
        passed += sum(hub not in pair for pair in switches)
    assert passed or players > 3
