"""Tests of the agent: its server vanishes, refuses, lies and is slow, and no test waits for it."""

from __future__ import annotations

import pytest
from exports import Agent, serve_export
from gevent.event import Event

from muxws_green import ConnectionLost, Frame
from muxws_green.testing import RawServer

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture
def line(muxws_server, relay):
    """A network that can fail, before a server that does not."""
    return relay(muxws_server(serve_export, heartbeat=None).url)


@pytest.fixture
def reports():
    """What an agent has reported, as (time, word)."""
    return []


@pytest.fixture
def agent(line, fake_clock, reports):
    """An agent that lives in fake time."""
    agent = Agent(line.url, lambda word: reports.append((fake_clock.now(), word)), clock=fake_clock)
    yield agent
    agent.close()


def test_it_fetches_whole_tables_and_the_beginning_of_one(agent):
    """Over real sockets, with nothing wrong."""
    assert agent.fetch("letters") == ["a", "b", "c"]
    assert agent.first("numbers", 2) == [0, 1]


def test_a_server_that_vanished_is_missed_after_half_a_minute(agent, line, fake_clock, reports):
    """The cable is pulled out and put back; half a minute passes at once."""
    line.both.drop()
    fake_clock.advance(29.0)
    line.both.restore()
    # What lies in between is lost for good: only a new connection helps.
    line.connections[0].both.drop()
    fake_clock.advance(2.0)
    assert reports == [(30.0, "lost"), (31.0, "back")]
    assert agent.fetch("letters") == ["a", "b", "c"]


def test_while_the_server_is_down_it_tries_again_ever_more_rarely(agent, line, fake_clock, reports):
    """The server's program ends, and is started again a minute later."""
    line.refuse()
    line.reset()
    fake_clock.advance(20.0)
    with pytest.raises(ConnectionLost):
        agent.fetch("letters")
    line.admit()
    fake_clock.advance(20.0)
    # It tried after 1, 3, 7, 15 and 31 seconds.
    assert reports == [(0.0, "lost"), (31.0, "back")]


def test_a_table_that_is_cut_off_is_an_error_and_no_short_table(agent, line):
    """The connection ends in the middle of a frame."""
    line.to_client.cut_after(5000)
    with pytest.raises(ConnectionLost):
        agent.fetch("numbers")


def test_a_slow_line_is_only_slow(agent, line, fake_clock, reports):
    """Five bytes a second; the heartbeat does not take it for death."""
    line.to_client.throttle(5)
    before = fake_clock.now()
    assert agent.fetch("letters") == ["a", "b", "c"]
    assert fake_clock.now() - before > 30.0
    assert reports == []


def test_a_server_that_breaks_the_rules_is_left(fake_clock):
    """A raw server says what no decent server says."""
    lost = Event()

    def misbehave(connection):
        # An acceptor opens even streams.
        connection.send(Frame("open", 7))
        connection.expect("goaway", code=3)
        connection.expect_close(1002)

    with RawServer(misbehave) as server:
        agent = Agent(server.url, lambda word: lost.set(), clock=fake_clock)
        lost.wait()
        agent.close()
