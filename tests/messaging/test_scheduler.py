"""The scheduler over fake time, with agents that do odd things; as processes both are in `test_programs`."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from gevent.event import Event

from muxws_green.messaging import BadBodyError, Message, MessagePeer
from muxws_green.messaging import agent as agent_module
from muxws_green.messaging.agent import AGAIN_SECONDS, MAX_WAITING, RESULT_SECONDS, Agent
from muxws_green.messaging.jobs import Attempt, JobBook
from muxws_green.messaging.scheduler import START_SECONDS, Scheduler, summary
from tests.seeds.scripted import outcome


class Desk:
    """A scheduler behind a server, what it has reported, and agents to send to it."""

    def __init__(self, make_service: Any, make_caller: Any, jobs: tuple[str, ...], options: dict[str, Any]) -> None:
        self.lines: list[str] = []
        self.book = JobBook()
        self.book.add(jobs)
        self.scheduler = Scheduler(self.book, self.lines.append)
        self.server = make_service(self.scheduler.setup, **options)
        self._make_caller = make_caller

    def agent(self, name: Any, start: Callable[[Message], Any] | None = None) -> MessagePeer:
        """An agent that has said hello; `start` is its method, None: it has none."""

        def setup(peer: MessagePeer) -> None:
            if start is not None:
                peer.on("start", start)

        peer: MessagePeer = self._make_caller(self.server.url, setup)
        peer.request("hello", {"agent": name})
        return peer


@pytest.fixture
def desk(service, caller) -> Callable[..., Desk]:
    return lambda *jobs, **options: Desk(service, caller, jobs, options)


def result(job: int, attempt: int, value: Any = "done") -> dict[str, Any]:
    return {"job": job, "attempt": attempt, "result": value}


def test_an_agent_is_given_one_job_after_the_other(clock, desk) -> None:
    here = desk("x", "y", "z")
    got: list[Any] = []
    agent = here.agent("a", lambda message: got.append(message.body))
    clock.settle()
    assert got == [{"job": 1, "attempt": 1, "text": "x"}]
    assert agent.request("result", result(1, 1)).body == {"taken": True}
    clock.settle()
    assert got[1:] == [{"job": 2, "attempt": 1, "text": "y"}]
    # The answer to its result got lost, say.
    assert agent.request("result", result(1, 1)).body == {"taken": True}
    assert agent.request("result", result(1, 7)).body == {"taken": False}
    other: list[Any] = []
    here.agent("b", lambda message: other.append(message.body))
    clock.settle()
    assert other == [{"job": 3, "attempt": 1, "text": "z"}]
    assert not here.scheduler.done.is_set()
    assert len(got) == 2


def test_all_done(clock, desk) -> None:
    here = desk("x")
    agent = here.agent("a", lambda message: None)
    clock.settle()
    agent.request("result", result(1, 1, {"exit": 0, "output": "fine\n"}))
    assert here.scheduler.done.is_set()
    assert summary(here.book) == ["job 1 'x': fine", "1 of 1 jobs done in 1 attempts, 0 results refused"]
    assert here.lines == [
        "agent a is here",
        "job 1 attempt 1: given to a",
        "job 1 attempt 1: result of a taken",
    ]


def test_nothing_to_do() -> None:
    assert Scheduler(JobBook(), print).done.is_set()


def test_a_dead_agent_is_told_from_one_that_has_left(clock, desk, raw_client) -> None:
    here = desk("x", heartbeat_interval=2.0, max_missed_pongs=1)
    wire = raw_client(here.server.url)
    wire.write("open", stream=1, headers={"method": "hello"}, payload={"agent": "mute"}, end=True)
    clock.advance(10.0)
    assert here.lines == [
        "agent mute is here",
        "job 1 attempt 1: given to mute",
        "agent mute is dead: no answer to 2 pings within 4s",
        "job 1 attempt 1: lost with mute",
    ]
    del here.lines[:]
    leaving = here.agent("a", lambda message: None)
    clock.settle()
    leaving.close()
    clock.settle()
    assert here.lines == [
        "agent a is here",
        "job 1 attempt 2: given to a",
        "agent a has left",
        "job 1 attempt 2: lost with a",
    ]


def test_an_agent_that_comes_by_another_connection(clock, desk) -> None:
    """It has lost the first one before this end has: what it held there is lost too."""
    here = desk("x")
    first = here.agent("a", lambda message: None)
    clock.settle()
    second = here.agent("a", lambda message: None)
    clock.settle()
    assert here.lines == [
        "agent a is here",
        "job 1 attempt 1: given to a",
        "agent a has come by another connection",
        "job 1 attempt 1: lost with a",
        "agent a is here",
        "job 1 attempt 2: given to a",
    ]
    assert first.is_closed
    assert second.request("result", result(1, 1)).body == {"taken": False}
    assert second.request("result", result(1, 2)).body == {"taken": True}
    assert summary(here.book)[-1] == "1 of 1 jobs done in 2 attempts, 1 results refused"


def test_an_agent_that_has_no_such_method_gets_no_jobs(clock, desk) -> None:
    here = desk("x")
    here.agent("a")
    clock.settle()
    assert here.lines == [
        "agent a is here",
        "job 1 attempt 1: given to a",
        "agent a does not take jobs: no method 'start'",
        "job 1 attempt 1: lost with a",
    ]
    here.agent("b", lambda message: None)
    clock.settle()
    assert here.lines[-1] == "job 1 attempt 2: given to b"


def test_an_agent_that_does_not_say_whether_it_has_a_job(clock, desk) -> None:
    here = desk("x")
    here.agent("a", lambda message: Event().wait())
    clock.advance(START_SECONDS)
    assert here.lines[2].startswith("agent a does not take jobs: ")
    assert here.lines[3] == "job 1 attempt 1: lost with a"


def test_what_an_earlier_connection_fails_with_does_not_touch_the_later_one(clock, desk, raw_client) -> None:
    """The agent has frozen, and come back otherwise, just before it would have had to say that it has the job."""
    here = desk("x")
    frozen = raw_client(here.server.url)
    frozen.write("open", stream=1, headers={"method": "hello"}, payload={"agent": "a"}, end=True)
    clock.settle()
    frozen.stop_reading()
    clock.advance(START_SECONDS - 0.5)
    here.agent("a", lambda message: None)
    clock.advance(START_SECONDS)
    assert here.lines[-1] == "job 1 attempt 2: given to a"
    assert here.book.jobs[0].agent == "a"


@pytest.mark.parametrize("body", [None, "a", {}, {"agent": ""}, {"agent": 7}, {"agent": None}])
def test_a_hello_that_says_nothing(clock, desk, caller, body) -> None:
    here = desk("x")
    with pytest.raises(BadBodyError, match="a hello is"):
        caller(here.server.url).request("hello", body)
    assert here.lines == []


def test_a_second_hello_on_a_connection(clock, desk) -> None:
    here = desk("x")
    agent = here.agent("a", lambda message: None)
    for name in ("a", "b"):
        with pytest.raises(BadBodyError, match="already"):
            agent.request("hello", {"agent": name})


@pytest.mark.parametrize(
    "body",
    [
        None,
        {},
        {"job": 1, "attempt": 1},
        {"job": "1", "attempt": 1, "result": 0},
        {"job": True, "attempt": 1, "result": 0},
    ],
)
def test_a_result_that_is_none(clock, desk, body) -> None:
    here = desk("x")
    agent = here.agent("a", lambda message: None)
    clock.settle()
    with pytest.raises(BadBodyError, match="a result is"):
        agent.request("result", body)
    assert here.book.refused == 0


def test_a_result_of_nobody(clock, desk, caller) -> None:
    here = desk("x")
    with pytest.raises(BadBodyError, match="said hello"):
        caller(here.server.url).request("result", result(1, 1))


# The agent's side of it


@pytest.mark.parametrize(
    "body", [None, {}, {"job": 1, "attempt": 1}, {"job": 1, "attempt": 1, "text": 7}, {"job": 1.5}]
)
def test_an_order_that_is_none(ends, body) -> None:
    pair = ends(Agent("a", ["true"], print).setup)
    with pytest.raises(BadBodyError, match="an order is"):
        pair.near.request("start", body)


def test_an_agent_takes_only_so_many_orders(ends, clock) -> None:
    lines: list[str] = []
    agent = Agent("a", ["true"], lines.append)
    pair = ends(agent.setup)
    for n in range(1, MAX_WAITING + 1):
        pair.near.request("start", {"job": n, "attempt": 1, "text": "x"})
    refused = outcome(pair.near.request, "start", {"job": 99, "attempt": 1, "text": "x"})
    assert "wait already" in str(refused.get())
    # What has not begun is lost with its connection.
    pair.near.close()
    clock.settle()
    again = ends(agent.setup)
    again.near.request("start", {"job": 1, "attempt": 2, "text": "x"})
    assert lines == []


def test_a_result_is_offered_until_somebody_says_what_becomes_of_it(clock, service, client) -> None:
    offers: list[Any] = []

    def setup(peer: MessagePeer) -> None:
        @peer.on("result")
        def take(message: Message) -> Any:
            offers.append(message.body)
            if len(offers) == 1:
                # It is taken, and nobody hears of that.
                message.peer.close(drain=0.0)
            if len(offers) == 2:
                Event().wait()
            return {"taken": True}

    lines: list[str] = []
    agent = Agent("a", ["true"], lines.append, clock=clock)
    to_scheduler = client(service(setup).url)
    to_scheduler.start()
    assert agent._deliver(to_scheduler, Attempt(3, 2, "x"), {"exit": 0, "output": "fine"})
    assert offers == [{"job": 3, "attempt": 2, "result": {"exit": 0, "output": "fine"}}] * 3
    assert lines == ["job 3 attempt 2: taken"]
    # Once after the loss, once after the deadline.
    assert clock.now() == AGAIN_SECONDS + RESULT_SECONDS + AGAIN_SECONDS


@pytest.mark.parametrize("answer,said", [({"taken": False}, "refused"), ({}, "refused"), (None, "refused")])
def test_a_result_that_is_refused_is_not_offered_again(clock, service, client, answer, said) -> None:
    lines: list[str] = []
    agent = Agent("a", ["true"], lines.append, clock=clock)
    to_scheduler = client(service(lambda peer: peer.on("result", lambda message: answer)).url)
    to_scheduler.start()
    assert agent._deliver(to_scheduler, Attempt(3, 2, "x"), {})
    assert lines == [f"job 3 attempt 2: {said}"]


def test_a_result_that_nobody_understands_is_not_offered_again(clock, service, client) -> None:
    lines: list[str] = []
    agent = Agent("a", ["true"], lines.append, clock=clock)
    to_scheduler = client(service().url)
    to_scheduler.start()
    assert agent._deliver(to_scheduler, Attempt(3, 2, "x"), {})
    assert lines == ["job 3 attempt 2: no method 'result'"]


def test_an_agent_that_is_stopped_offers_nothing_any_more(clock, service, client) -> None:
    lines: list[str] = []
    agent = Agent("a", ["true"], lines.append, clock=clock)
    server = service()
    server.stop()
    to_scheduler = client(server.url)
    to_scheduler.start()
    offering = outcome(agent._deliver, to_scheduler, Attempt(3, 2, "x"), {})
    clock.advance(60.0)
    assert not offering.ready()
    to_scheduler.stop()
    assert offering.get() is False
    assert lines == []


def test_an_agent_that_is_stopped_works_no_more(clock, service, client, monkeypatch) -> None:
    # gevent's would from now on reap the children of every other test, whose exit codes were lost.
    monkeypatch.setattr(agent_module, "subprocess", subprocess)

    def setup(peer: MessagePeer) -> None:
        peer.on("result", lambda message: Event().wait())
        peer.push("start", {"job": 1, "attempt": 1, "text": "x"})

    started = Event()
    agent = Agent("a", ["true"], lambda line: started.set(), clock=clock)
    to_scheduler = client(service(setup).url, setup=agent.setup)
    to_scheduler.start()
    working = outcome(agent.work, to_scheduler)
    with clock.held():
        assert started.wait(5)
    to_scheduler.stop(drain=0.0)
    assert working.get(timeout=5) is None
