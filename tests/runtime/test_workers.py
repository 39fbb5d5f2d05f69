"""The greenlets of handlers: shared by those that cannot tell, and by no others."""

from __future__ import annotations

import sys
import weakref
from contextvars import ContextVar

import gevent
import pytest
from gevent import getcurrent
from gevent.event import Event
from gevent.local import local

from muxws_green.runtime.waiting import Doorbell
from muxws_green.runtime.workers import JOBS_A_TURN, Workers, workers_of
from muxws_green.testing import settle
from tests.runtime.ends import PATIENCE, outcome

LOCAL = local()
VARIABLE: ContextVar[str] = ContextVar("VARIABLE", default="none")
KEPT: list[object] = []


@pytest.fixture(autouse=True)
def nothing_kept():
    yield
    KEPT.clear()


def idents(made, handler, count=2):
    """Let `count` handlers run behind each other, and return the identity of the greenlet of each."""
    seen: list[int] = []
    with_writer(made)

    def handle(payload, stream):
        seen.append(id(getcurrent()))
        handler(payload, stream)

    made.far.on_stream(handle)
    for number in range(count):
        made.near.open(number, end=True)
    settle()
    assert len(seen) == count
    return seen


def with_writer(made):
    """The first handler of a connection has its writer made, which remembers who did that: have that behind us."""
    made.far.on_stream(lambda payload, stream: stream.reply(None))
    made.near.request(timeout=PATIENCE)
    return made


def test_handlers_that_do_not_wait_share_one(ends):
    made = ends()
    assert len(set(idents(made, lambda payload, stream: stream.reply(payload), 10))) == 1
    # Also with the next ones, which come later.
    first = idents(made, lambda payload, stream: None, 1)
    assert idents(made, lambda payload, stream: None, 1) == first


def test_one_that_waits_has_its_own(ends):
    made, gate = with_writer(ends()), Event()
    running: list[object] = []

    def handle(payload, stream):
        running.append(getcurrent())
        if payload % 2:
            gate.wait()

    made.far.on_stream(handle)
    for number in range(6):
        made.near.open(number, end=True)
    settle()
    waiting = running[1::2]
    assert len(set(map(id, waiting))) == 3
    assert not any(each.dead for each in waiting)
    gate.set()
    settle()
    assert all(each.dead for each in waiting)


def as_gevent_has_it() -> gevent.Greenlet[..., object]:
    current = getcurrent()
    assert isinstance(current, gevent.Greenlet)
    return current


def start_a_timeout():
    gevent.Timeout(0.0).start()


def refer_weakly():
    weakly = weakref.ref(getcurrent())
    gevent.get_hub().loop.run_callback(lambda: KEPT.append(weakly()))


def set_an_attribute():
    getcurrent().request = 7


def set_a_local():
    LOCAL.request = 7


def keep_after_a_wait():
    # Whoever lets it go on refers to it no more, and somebody else does.
    gevent.sleep(0)
    KEPT.append(getcurrent())


LEAVINGS = {
    "itself after a wait": keep_after_a_wait,
    "itself somewhere": lambda: KEPT.append(getcurrent()),
    "a kill under way": lambda: as_gevent_has_it().kill(block=False),
    "a switch under way": lambda: gevent.get_hub().loop.run_callback(getcurrent().switch),
    "a timeout": start_a_timeout,
    "a link": lambda: as_gevent_has_it().rawlink(KEPT.append),
    "a weak reference": refer_weakly,
    "an attribute": set_an_attribute,
    "a local value": set_a_local,
}


@pytest.mark.parametrize("leave", LEAVINGS)
def test_one_that_leaves_something_behind_is_the_last_of_its_greenlet(ends, leave):
    made, answers = with_writer(ends()), []

    def handle(payload, stream):
        # To ask for a local value is to have one.
        answers.append(getattr(LOCAL if "local" in leave else getcurrent(), "request", None))
        if payload == "first":
            LEAVINGS[leave]()
        stream.reply(payload)

    made.far.on_stream(handle)
    callers = [outcome(made.near.request, payload, timeout=PATIENCE) for payload in ("first", "second", "third")]
    assert [caller.get(timeout=PATIENCE) for caller in callers] == ["first", "second", "third"]
    assert answers == [None] * 3
    settle()
    assert len(KEPT) == (leave in ("itself somewhere", "itself after a wait", "a link", "a weak reference"))
    # Whoever was told of the greenlet finds it dead, as after any other handler.
    for kept in KEPT:
        assert kept is None or kept.dead
    assert made.near.request("fourth", timeout=PATIENCE) == "fourth"


def test_what_is_thrown_late_hits_nobody_else(ends):
    """A timeout that its handler forgot fires while a later handler is at work."""
    made, gate = with_writer(ends()), Event()

    def handle(payload, stream):
        if payload == "forgets":
            gevent.Timeout(0.001).start()
            return
        gate.wait()
        gevent.sleep(0.005)
        stream.reply(payload)

    made.far.on_stream(handle)
    made.near.open("forgets", end=True)
    caller = outcome(made.near.request, "works", timeout=PATIENCE)
    settle()
    gate.set()
    assert caller.get(timeout=PATIENCE) == "works"


def test_each_has_a_context_of_its_own(ends):
    made, seen = ends(), []

    def handle(payload, stream):
        seen.append(VARIABLE.get())
        VARIABLE.set("mine")

    assert len(set(idents(made, handle, 3))) == 1
    assert seen == ["none"] * 3


def test_many_that_do_not_wait_let_others_have_a_turn(ends):
    made = ends(far_options={"max_concurrent_streams": 1000})
    count, order = 2 * JOBS_A_TURN + 1, []
    made.far.on_stream(lambda payload, stream: order.append("handler"))
    for _ in range(count):
        made.near.open(end=True)
    while "handler" not in order:
        order.append("another")
        gevent.sleep(0)
    while order.count("handler") < count:
        order.append("another")
        gevent.sleep(0)
    turns = "".join(entry[0] for entry in order).strip("a").split("a")
    assert max(map(len, turns)) <= JOBS_A_TURN
    assert len([turn for turn in turns if turn]) >= 3


def test_a_resting_one_that_is_killed_is_replaced(ends):
    made = ends()
    with_writer(made).far.on_stream(lambda payload, stream: stream.reply(id(getcurrent())))
    made.near.request(timeout=PATIENCE)
    settle()
    resting = workers_of(gevent.get_hub())._resting
    assert resting is not None
    assert resting.name == "between handlers"
    resting.kill()
    assert resting.dead
    assert made.near.request(timeout=PATIENCE) != id(resting)


def test_one_that_ends_the_program_does_not_keep_the_others_from_running(ends, expected_hub_errors):
    made, seen = ends(), []

    def handle(payload, stream):
        seen.append(payload)
        if payload == 1:
            raise KeyboardInterrupt

    made.far.on_stream(handle)
    for number in range(4):
        made.near.open(number, end=True)
    with pytest.raises(KeyboardInterrupt):
        settle()
    settle()
    assert seen == [0, 1, 2, 3]


def test_their_names_tell_whom_they_work_for(ends):
    made, names = ends(), []
    made.far.on_stream(lambda payload, stream: names.append((getcurrent().name, stream.id)))
    made.near.open(end=True)
    made.near.open(end=True)
    settle()
    assert names == [(f"handler {made.far.id} stream {stream}", stream) for _, stream in names]
    assert len({stream for _, stream in names}) == 2


class Noted:
    """A job that says when it runs."""

    name = "noted"

    def __init__(self, ran):
        self.ran = ran

    def run(self, in_greenlet):
        self.ran.append(in_greenlet)


def test_jobs_that_are_gone_when_their_turn_comes_keep_no_later_one_from_running():
    workers, ran = Workers(gevent.get_hub()), []
    workers.submit(Noted(ran))
    # As in a forked child.
    workers.disown()
    gevent.sleep(0.001)
    assert ran == []
    workers.submit(Noted(ran))
    gevent.sleep(0.001)
    assert len(ran) == 1
    workers.dismiss()
    settle()
    assert ran[0].dead


def wait_by_bell():
    """Nothing is queued in the hub meanwhile, so that who is due alone is given the turn."""
    bell = Doorbell(gevent.get_hub())
    timer = gevent.get_hub().loop.timer(0.001)
    timer.start(bell.ring)
    bell.rest()
    timer.close()


WAYS_TO_WAIT = {
    "a turn": lambda: gevent.sleep(0),
    "a moment": lambda: gevent.sleep(0.0001),
    "an event": lambda: gevent.spawn(lambda: None).join(),
    "a wait of ours": wait_by_bell,
}


@pytest.mark.parametrize("directly", [True, False])
@pytest.mark.parametrize("way", WAYS_TO_WAIT)
@pytest.mark.parametrize("before", [0, 1])
def test_one_that_has_waited_does_not_rest(way, directly, before):
    """Whoever lets it go on may refer to it where something else did before, so that counting finds no difference."""
    hub = gevent.get_hub()
    workers, wait = Workers(hub), WAYS_TO_WAIT[way]
    done = []

    class Waiting:
        name = "waiting"

        def __init__(self, wait):
            self.wait = wait

        def run(self, in_greenlet):
            del in_greenlet
            self.wait()
            done.append(True)

    for act in [*[list] * before, wait]:
        if not directly:
            hub.loop.run_callback(list)
        workers.submit(Waiting(act))
        # Whoever waits here gives its turn to the job.
        wait_by_bell()
        gevent.sleep(0.002)
    assert len(done) == before + 1
    assert workers._resting is None


def test_one_may_call_as_deep_as_any_however_deep_the_one_is_that_gives_it_its_turn():
    """A greenlet has as many levels left as the one that begins it."""
    workers, reached = Workers(gevent.get_hub()), []

    class Diving:
        name = "diving"

        def run(self, in_greenlet):
            reached.append(self.dive())

        def dive(self):
            try:
                return 1 + self.dive()
            except RecursionError:
                return 0

    def give_turn(levels):
        if levels:
            give_turn(levels - 1)
        else:
            workers.submit(Diving())
            wait_by_bell()

    give_turn(500)
    gevent.sleep(0.001)
    give_turn(500)
    gevent.sleep(0.001)
    assert len(reached) == 2
    assert min(reached) > sys.getrecursionlimit() - 300


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("before", [0, 1])
def test_a_job_begins_before_whoever_was_woken_behind_it(jobs, before):
    """As where a message that opens a stream and one that answers another have come together."""
    workers, order = Workers(gevent.get_hub()), []
    bell = Doorbell(gevent.get_hub())

    def sleep():
        bell.rest()
        order.append("woken")

    class Ordered:
        name = "ordered"

        def run(self, in_greenlet):
            order.append("job")

    for _ in range(before):
        workers.submit(Noted([]))
        gevent.sleep(0.001)
    sleeper = gevent.spawn(sleep)
    gevent.sleep(0.001)
    for _ in range(jobs):
        workers.submit(Ordered())
    bell.ring()
    wait_by_bell()
    sleeper.join(PATIENCE)
    assert order == ["job"] * jobs + ["woken"]
