"""The heartbeat policies against their sentences, against brute force, and with bytes on a slow line."""

from __future__ import annotations

import math
from itertools import count
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muxws_green.errors import HeartbeatTimeoutError
from muxws_green.protocol.liveness import CountingHeartbeat, IdleHeartbeat, Outflow


def nonces():
    numbers = count(1)
    return lambda: f"nonce {next(numbers)}"


def idle(interval=20.0, timeout=10.0, now=0.0):
    return IdleHeartbeat(interval, timeout).start(now, nonces())


def counting(interval=5.0, max_missed=3, now=0.0):
    return CountingHeartbeat(interval, max_missed).start(now, pytest.fail)


def run(beat, until, events=()):
    """Play a connection: look when due, with `events` of (time, method) in between; return what looks gave."""
    happened = []
    agenda = sorted(events, key=lambda event: event[0])
    now = 0.0
    while True:
        due = beat.due()
        if agenda and agenda[0][0] <= due:
            now, method = agenda.pop(0)
            getattr(beat, method)(now)
            continue
        if due > until:
            return happened
        now = due
        try:
            nonce = beat.look(now)
        except HeartbeatTimeoutError:
            return [*happened, (now, "dead")]
        if nonce is not None:
            happened.append((now, nonce))


# What is refused

NOT_A_DURATION = [0, 0.0, -1.0, -0.0, math.nan, math.inf, -math.inf, True, False, None, "5", 5j]


@pytest.mark.parametrize("seconds", NOT_A_DURATION)
def test_a_duration_is_a_finite_number_above_0(seconds):
    for make in (
        lambda: IdleHeartbeat(interval=seconds),
        lambda: IdleHeartbeat(timeout=seconds),
        lambda: CountingHeartbeat(interval=seconds),
    ):
        with pytest.raises(ValueError, match="must be a finite number of seconds above 0"):
            make()


@pytest.mark.parametrize("missed", [-1, True, False, None, 3.0, "3", math.nan])
def test_a_count_is_an_int_from_0(missed):
    with pytest.raises(ValueError, match="max_missed must be an int"):
        CountingHeartbeat(max_missed=missed)


def test_the_defaults_are_those_of_the_seeds():
    assert IdleHeartbeat() == IdleHeartbeat(interval=20.0, timeout=10.0)
    assert CountingHeartbeat() == CountingHeartbeat(interval=5.0, max_missed=3)
    assert IdleHeartbeat(1, 2) == IdleHeartbeat(1.0, 2.0)


# The idle policy


def test_an_idle_connection_is_pinged_after_the_interval_and_dead_after_the_timeout():
    assert run(idle(), 1000.0) == [(20.0, "nonce 1"), (30.0, "dead")]


def test_time_begins_when_the_connection_is_established():
    beat = idle(now=1000.0)
    assert beat.due() == 1020.0
    assert beat.look(1019.9) is None
    assert beat.look(1020.0) == "nonce 1"


@pytest.mark.parametrize(
    "frames,pinged",
    [
        # Received frames restart the idle time, each of them.
        ([(5.0, "received")], 25.0),
        ([(5.0, "received"), (19.0, "received"), (38.0, "received")], 58.0),
        # Being established counts as received, so the first frame sent restarts it; the next ones do not.
        ([(5.0, "sent")], 25.0),
        ([(5.0, "sent"), (10.0, "sent"), (24.0, "sent")], 25.0),
        # Each answer allows one more restart by sending.
        ([(5.0, "sent"), (6.0, "received"), (10.0, "sent")], 30.0),
        ([(5.0, "sent"), (6.0, "received"), (10.0, "sent"), (11.0, "sent")], 30.0),
        ([(5.0, "received"), (6.0, "received"), (10.0, "sent"), (29.0, "sent")], 30.0),
    ],
)
def test_what_postpones_a_ping(frames, pinged):
    assert run(idle(), 1000.0, frames) == [(pinged, "nonce 1"), (pinged + 10.0, "dead")]


def test_anything_received_after_the_ping_saves_the_remote():
    saved = [(29.9, "received"), (49.9, "received")]
    assert run(idle(), 1000.0, saved) == [(20.0, "nonce 1"), (49.9 + 20.0, "nonce 2"), (49.9 + 20.0 + 10.0, "dead")]


def test_what_arrives_in_time_counts_though_the_look_comes_late():
    beat = idle()
    assert beat.look(20.0) == "nonce 1"
    beat.received(29.0)
    assert beat.look(35.0) is None
    assert beat.due() == 49.0


def test_sending_does_not_save_it():
    assert run(idle(), 1000.0, [(t / 2, "sent") for t in range(200)]) == [(20.0, "nonce 1"), (30.0, "dead")]


def test_one_ping_at_most_is_outstanding():
    happened = run(idle(interval=1.0, timeout=100.0), 1000.0, [(50.0, "sent"), (60.0, "leaving")])
    assert happened == [(1.0, "nonce 1"), (160.0, "dead")]


def test_a_quick_answer_under_a_long_timeout_is_followed_by_the_next_ping_in_time():
    answers = [(1.1, "received"), (7.5, "received")]
    assert run(idle(interval=1.0, timeout=100.0), 50.0, answers) == [
        (1.0, "nonce 1"),
        (2.1, "nonce 2"),
        (8.5, "nonce 3"),
    ]


def test_a_death_carries_1006_and_says_why():
    beat = idle(timeout=2.5)
    beat.look(20.0)
    with pytest.raises(HeartbeatTimeoutError, match=r"no pong within 2\.5s") as caught:
        beat.look(22.5)
    assert (caught.value.code, caught.value.reason, caught.value.was_clean) == (1006, "no pong within 2.5s", False)


@pytest.mark.parametrize("beat,due", [(idle(), 20.0), (counting(max_missed=0), 0.0)])
def test_a_death_that_is_not_believed_can_be_asked_for_again_and_prevented(beat, due):
    beat.look(due)
    for _ in range(3):
        with pytest.raises(HeartbeatTimeoutError):
            beat.look(1000.0)
    beat.received(1000.0)
    beat.look(1000.0)


def test_a_look_without_need_does_nothing():
    beat = idle()
    for tenth in range(200):
        assert beat.look(tenth / 10) is None
    assert beat.look(20.0) == "nonce 1"
    for tenth in range(200, 300):
        assert beat.look(tenth / 10) is None


# The counting policy


def test_it_pings_at_once_and_at_every_interval_with_numbers():
    answers = [(5.0 * n + 0.1, "received") for n in range(100)]
    assert run(counting(), 20.0, answers) == [(0.0, "1"), (5.0, "2"), (10.0, "3"), (15.0, "4"), (20.0, "5")]


@pytest.mark.parametrize("interval", [0.1, 0.3, 1 / 3, 5.0, 7.7])
@pytest.mark.parametrize("max_missed", [0, 1, 2, 3, 10])
def test_silence_is_death_after_exactly_one_more_interval_than_pings_may_be_missed(interval, max_missed):
    happened = run(counting(interval, max_missed), 1000.0)
    assert happened[-1] == ((max_missed + 1) * interval, "dead")
    assert happened[:-1] == [(n * interval, str(n + 1)) for n in range(max_missed + 1)]


@pytest.mark.parametrize("interval", [0.1, 0.3, 1 / 3, 5.0, 7.7])
@pytest.mark.parametrize("answered", range(5))
def test_that_a_ping_leaves_at_its_own_time_changes_nothing(interval, answered):
    beat = counting(interval)
    for number in range(answered + 4):
        now = beat.due()
        assert now == number * interval
        assert beat.look(now) == str(number + 1)
        if number <= answered:
            beat.leaving(now)
        if number < answered:
            beat.received(now)
    assert beat.due() == (answered + 4) * interval
    with pytest.raises(HeartbeatTimeoutError):
        beat.look(beat.due())


def test_where_pings_leave_a_moment_later_the_verdict_comes_a_moment_later_and_no_ping_before_it():
    beat = counting()
    for number in range(4):
        assert beat.look(5.0 * number) == str(number + 1)
        if not number:
            beat.leaving(0.001)
    assert beat.look(20.0) is None
    assert beat.due() == 20.001
    beat.received(20.0005)
    assert beat.due() == 25.0
    assert beat.look(25.0) == "5"


def test_answering_every_third_ping_is_enough():
    answers = [(15.0 * n + 10.1, "received") for n in range(100)]
    assert len(run(counting(), 1000.0, answers)) == 201


def test_anything_received_sets_the_count_to_zero():
    """Between the fourth ping and the moment of death; the fifth is the first unanswered one then."""
    happened = run(counting(), 1000.0, [(19.9, "received")])
    assert happened[-3:] == [(30.0, "7"), (35.0, "8"), (40.0, "dead")]


def test_traffic_does_not_change_when_it_pings():
    events = [(t / 10, "sent" if t % 2 else "received") for t in range(1, 300)]
    assert [time for time, _ in run(counting(), 25.0, events)] == [0.0, 5.0, 10.0, 15.0, 20.0, 25.0]


def test_a_late_look_sends_one_ping_and_the_next_comes_an_interval_later():
    beat = counting()
    assert beat.look(0.0) == "1"
    beat.received(1.0)
    assert beat.look(23.0) == "2"
    assert beat.look(23.0) is None
    assert beat.due() == 28.0


def test_who_was_not_pinged_does_not_die_of_it():
    """A hub that was blocked for a minute has sent one ping in it, not twelve."""
    beat = counting()
    assert beat.look(0.0) == "1"
    assert beat.look(60.0) == "2"
    assert beat.due() == 65.0


def test_its_death_carries_1006_and_says_why():
    beat = counting(interval=0.5, max_missed=1)
    assert (beat.look(0.0), beat.look(0.5)) == ("1", "2")
    with pytest.raises(HeartbeatTimeoutError) as caught:
        beat.look(1.0)
    assert (caught.value.code, caught.value.reason) == (1006, "no answer to 2 pings within 1s")


# Against brute force, on a grid of quarters of a second that floats represent exactly


class Event(NamedTuple):
    kind: str
    tick: int


def schedules(*kinds):
    events = st.lists(st.tuples(st.sampled_from(kinds), st.integers(1, 160)), max_size=25)
    return events.map(lambda found: sorted((Event(*event) for event in found), key=lambda event: event.tick))


ticks = st.integers(1, 12)


def lazy(beat, events, end):
    """A runtime with one timer, set to `due` as it was when the timer was set; events come first in their tick."""
    happened = []
    armed = beat.due()
    for tick in range(end):
        now = tick / 4
        for event in events:
            if event.tick == tick:
                getattr(beat, event.kind)(now)
        while armed <= now:
            if beat.due() <= now:
                try:
                    if beat.look(now) is not None:
                        happened.append(("ping", tick))
                except HeartbeatTimeoutError:
                    return [*happened, ("dead", tick)]
            armed = beat.due()
    return happened


@given(ticks, ticks, schedules("received", "sent", "leaving"))
def test_the_idle_policy_does_what_its_rules_say(interval, timeout, events):
    expected = []
    pinged = None
    for tick in range(200):
        past = [(number, event) for number, event in enumerate(events) if event.tick <= tick]
        received = [(number, event.tick) for number, event in past if event.kind == "received"]
        last, last_tick = received[-1] if received else (-1, 0)
        # Of what has been sent since anything was received, the first frame counts.
        sent_since = [event.tick for number, event in past if event.kind == "sent" and number > last]
        idle_since = sent_since[0] if sent_since else last_tick
        if pinged is not None and last >= pinged[0]:
            pinged = None
        if pinged is not None:
            leaving = [event.tick for number, event in past if event.kind == "leaving" and number >= pinged[0]]
            if tick >= max([pinged[1], *leaving]) + timeout:
                expected.append(("dead", tick))
                break
        elif tick >= idle_since + interval:
            pinged = (len(past), tick)
            expected.append(("ping", tick))
    beat = IdleHeartbeat(interval / 4, timeout / 4).start(0.0, nonces())
    assert lazy(beat, events, 200) == expected


@given(ticks, st.integers(0, 3), schedules("received", "sent", "leaving"))
def test_the_counting_policy_does_what_its_rules_say(interval, max_missed, events):
    expected = []
    pings = []
    for tick in range(200):
        past = [(number, event) for number, event in enumerate(events) if event.tick <= tick]
        last = max((number for number, event in past if event.kind == "received"), default=-1)
        unanswered = [ping for ping in pings if ping[0] > last]
        if len(unanswered) > max_missed:
            since, first = unanswered[0]
            leaving = [event.tick for number, event in past if event.kind == "leaving" and number >= since]
            verdict = max([first, *leaving]) + (max_missed + 1) * interval
            if tick >= verdict:
                expected.append(("dead", tick))
                break
            if verdict < tick + interval:
                continue
        if tick % interval == 0:
            pings.append((len(past), tick))
            expected.append(("ping", tick))
    beat = CountingHeartbeat(interval / 4, max_missed).start(0.0, pytest.fail)
    assert lazy(beat, events, 200) == expected


policies = st.one_of(
    st.builds(IdleHeartbeat, ticks, ticks),
    st.builds(CountingHeartbeat, ticks, st.integers(0, 3)),
)


@given(policies, st.lists(st.tuples(st.integers(0, 8), st.sampled_from(["received", "sent", "leaving", "look"]))))
def test_only_a_look_makes_the_next_one_due_sooner(policy, steps):
    beat = policy.start(0.0, nonces())
    now = 0.0
    for pause, method in steps:
        now += pause
        before = beat.due()
        try:
            getattr(beat, method)(now)
        except HeartbeatTimeoutError:
            assert now >= before
            return
        assert method == "look" or beat.due() >= before


# The bounds that people are promised


@given(ticks, ticks, schedules("received", "sent"))
def test_death_comes_within_interval_and_timeout_of_the_first_frame_that_nothing_answered(interval, timeout, events):
    beat = IdleHeartbeat(interval / 4, timeout / 4).start(0.0, nonces())
    happened = lazy(beat, events, 400)
    kind, died = happened[-1]
    assert kind == "dead"
    seen = [event for event in events if event.tick <= died]
    received = [number for number, event in enumerate(seen) if event.kind == "received"]
    unanswered = seen[received[-1] + 1 :] if received else seen
    last = seen[received[-1]].tick if received else 0
    assert died <= (unanswered[0].tick if unanswered else last) + interval + timeout
    assert died <= last + 2 * interval + timeout


@given(ticks, ticks, st.lists(st.tuples(st.sampled_from(["received", "sent"]), st.integers(1, 12)), min_size=1))
def test_an_idle_or_two_way_connection_is_found_dead_within_interval_and_timeout(interval, timeout, talk):
    """Each frame sent is answered before the next: then the last frame is the one that counts, as seed A says."""
    tick = 0
    events = []
    for kind, pause in talk:
        tick += min(pause, interval)
        events.append(Event(kind, tick))
        if kind == "sent":
            events.append(Event("received", tick))
    events.append(Event("sent", tick))
    beat = IdleHeartbeat(interval / 4, timeout / 4).start(0.0, nonces())
    assert lazy(beat, events, tick + 200)[-1] == ("dead", tick + interval + timeout)


@given(ticks, ticks, schedules("sent", "received"))
def test_who_answers_every_ping_in_time_lives(interval, timeout, events):
    beat = IdleHeartbeat(interval / 4, timeout / 4).start(0.0, nonces())
    answer = None
    for tick in range(300):
        now = tick / 4
        for event in events:
            if event.tick == tick:
                getattr(beat, event.kind)(now)
        if answer == tick:
            beat.received(now)
        if beat.look(now) is not None:
            answer = tick + timeout - 1 if timeout > 1 else None
            if answer is None:
                beat.received(now)


# Bytes that are still leaving


def test_a_ping_that_has_left_is_not_on_its_way():
    flow = Outflow()
    assert not flow.follows
    flow.queued(0.0, 10.0, received=0, handed=50_000, unacknowledged=0)
    assert flow.follows
    # The write with the ping.
    assert flow.moved(0, 50_040, 40)
    assert not flow.follows
    assert not flow.moved(0, 50_040, 40)
    assert not flow.moved(0, 50_040, 0)
    # What is sent behind it has nothing to do with it.
    assert not flow.moved(0, 900_000, 800_000)
    assert not flow.moved(0, 900_000, 10_000)
    assert flow.look_at(1.0, 10.0) == 10.0


@pytest.mark.parametrize("behind", [0, 60_000])
def test_a_few_bytes_before_it_do_not_count(behind):
    """A frame sent just before a ping moves no deadline, whatever is written behind the two."""
    flow = Outflow()
    flow.queued(0.0, 10.0, received=0, handed=50_000, unacknowledged=4_000)
    assert flow.look_at(0.0, 10.0) == 10.0
    assert flow.moved(0, 50_040 + behind, 4_040 + behind)
    assert not flow.follows
    assert not flow.moved(0, 50_040 + behind, behind)


def test_it_is_looked_at_more_often_while_bytes_before_it_are_here_and_never_late():
    flow = Outflow()
    flow.queued(2.0, 10.0, received=0, handed=50_000, unacknowledged=40_000)
    assert flow.look_at(2.0, 10.0) == 2.25
    assert flow.look_at(2.25, 10.0) == 2.5
    assert flow.look_at(2.5, 10.0) == 3.0
    assert flow.look_at(5.0, 10.0) == 6.0
    assert flow.look_at(9.5, 10.0) == 10.0
    assert flow.look_at(12.0, 20.0) == 13.0


def test_bytes_before_it_are_followed_until_the_last_is_acknowledged():
    flow = Outflow()
    flow.queued(0.0, 10.0, received=0, handed=100_000, unacknowledged=90_000)
    assert not flow.moved(0, 100_000, 90_000)
    assert flow.moved(0, 100_000, 80_000)
    assert flow.moved(0, 100_040, 50_000)
    assert flow.moved(0, 150_000, 99_000)
    assert not flow.moved(0, 150_000, 99_000)
    assert flow.follows
    # The step that takes the ping along too.
    assert flow.moved(0, 150_000, 10_000)
    assert not flow.follows
    assert not flow.moved(0, 150_000, 5_000)


@pytest.mark.parametrize("unacknowledged", [0, 4_000])
def test_a_ping_that_the_writer_had_no_turn_to_write_is_on_its_way(unacknowledged):
    flow = Outflow()
    flow.queued(0.0, 10.0, received=0, handed=50_000, unacknowledged=unacknowledged)
    assert flow.moved(0, 50_000, unacknowledged)
    assert flow.moved(0, 50_000, unacknowledged)


def test_a_ping_behind_a_write_that_is_stuck_is_not():
    flow = Outflow()
    flow.queued(0.0, 10.0, received=0, handed=50_000, unacknowledged=40_000)
    assert not flow.moved(0, 50_000, 40_000)


def test_where_nothing_is_known_of_the_kernel_only_the_write_counts():
    flow = Outflow()
    flow.queued(0.0, 10.0, received=0, handed=50_000, unacknowledged=None)
    assert not flow.moved(0, 50_000, None)
    assert flow.follows
    assert flow.moved(0, 50_040, None)
    assert not flow.follows
    assert not flow.moved(0, 900_000, None)
    assert flow.look_at(1.0, 10.0) == 10.0


def test_a_kernel_that_begins_to_tell_is_believed_from_then_on():
    flow = Outflow()
    flow.queued(0.0, 10.0, received=0, handed=50_000, unacknowledged=None)
    assert not flow.moved(0, 50_000, 40_000)
    assert not flow.moved(0, 50_000, 40_000)
    assert flow.moved(0, 50_000, 30_000)
    assert flow.look_at(1.0, 10.0) < 10.0


def test_an_answer_ends_it():
    flow = Outflow()
    flow.queued(0.0, 10.0, received=7, handed=50_000, unacknowledged=40_000)
    assert not flow.moved(8, 50_000, 30_000)
    assert not flow.follows
    assert not flow.moved(8, 50_000, 20_000)
    assert flow.look_at(1.0, 10.0) == 10.0


def test_the_first_unanswered_ping_is_followed_and_after_an_answer_the_next():
    flow = Outflow()
    flow.queued(0.0, 10.0, received=7, handed=50_000, unacknowledged=40_000)
    flow.queued(5.0, 10.0, received=7, handed=9_000_000, unacknowledged=8_990_000)
    assert flow.moved(7, 9_000_000, 8_900_000)
    assert not flow.moved(7, 9_000_000, 8_800_000)
    assert not flow.follows
    flow.queued(10.0, 15.0, received=8, handed=9_000_000, unacknowledged=8_800_000)
    assert flow.follows
    assert flow.moved(8, 9_000_000, 8_700_000)


class Line:
    """A slow line: `backlog` bytes were handed over at 0, `rate` of them are acknowledged a second, until `freezes`."""

    def __init__(self, backlog, rate, freezes):
        self.rate = rate
        self.freezes = freezes
        self.handed = backlog

    def unacknowledged(self, now):
        return max(0, self.handed - int(self.rate * min(now, self.freezes)))


def play(policy, line, ping_bytes=40):
    """Let the whole of it run, with a remote that never answers; return when the first ping left and who died when."""
    beat = policy.start(0.0, nonces())
    flow = Outflow()
    now = beat.due()
    first = None
    for _ in range(100_000):
        if flow.follows and flow.moved(0, line.handed, line.unacknowledged(now)):
            beat.leaving(now)
        try:
            nonce = beat.look(now)
        except HeartbeatTimeoutError:
            return first, now
        if nonce is not None:
            first = now if first is None else first
            flow.queued(now, beat.due(), 0, line.handed, line.unacknowledged(now))
            line.handed += ping_bytes
            if flow.moved(0, line.handed, line.unacknowledged(now)):
                beat.leaving(now)
        now = flow.look_at(now, beat.due())
    pytest.fail("it never came to an end")


WAITS = [
    (IdleHeartbeat(20.0, 10.0), 10.0, 1.25),
    (IdleHeartbeat(1.0, 1.0), 1.0, 0.125),
    (CountingHeartbeat(5.0, 3), 20.0, 0.625),
    (CountingHeartbeat(5.0, 0), 5.0, 0.625),
]


@pytest.mark.parametrize("policy,wait,step", WAITS)
@given(backlog=st.integers(0, 4_000_000), rate=st.integers(1000, 1_000_000), freezes=st.floats(0.0, 5000.0))
def test_the_wait_begins_when_the_ping_has_left_or_nothing_moves(policy, wait, step, backlog, rate, freezes):
    line = Line(backlog, rate, freezes)
    first, died = play(policy, line)
    # The last few bytes before it count as gone.
    earliest = max(first, min((backlog - 4097) / rate, freezes - 1 / rate))
    latest = max(first, min((backlog + 40) / rate, freezes))
    assert earliest + wait - 1e-6 <= died <= latest + wait + step + 1e-6


@pytest.mark.parametrize("policy,wait,step", WAITS)
def test_a_remote_that_took_nothing_any_more_is_dead_on_time(policy, wait, step):
    first, died = play(policy, Line(4_000_000, 200_000, 0.0))
    assert died == first + wait


@pytest.mark.parametrize("policy,wait,step", WAITS)
def test_a_ping_with_nothing_before_it_is_waited_for_from_its_own_time(policy, wait, step):
    first, died = play(policy, Line(0, 1000, math.inf))
    assert died == first + wait


@pytest.mark.seed("B")
@pytest.mark.parametrize("held", [10, 100])
def test_a_send_that_holds_our_pings_does_not_kill_a_healthy_peer(held):
    """Its own pings arrive meanwhile. Once it has frozen, it is dead on time although the send is stuck."""
    beat = counting()
    theirs = [(5.0 * n + 2.5, "received") for n in range(held)]
    happened = run(beat, 10_000.0, theirs)
    assert happened[-1] == (5.0 * held + 20.0, "dead")
