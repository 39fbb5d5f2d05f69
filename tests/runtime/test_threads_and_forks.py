"""A peer belongs to one hub and one process: calls from elsewhere say so, and a forked child leaves its parent's
connections alone (DESIGN §2).
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Any

import gevent
import pytest

from muxws_green import JsonCodec, RemoteError, StreamState
from muxws_green.runtime import home as home_module
from muxws_green.runtime.options import Options
from muxws_green.runtime.peer import Peer
from muxws_green.testing import established_peer, peer_pair, settle
from muxws_green.transports.memory import memory_pair
from tests.runtime.ends import PATIENCE, Gate, echo, outcome


def in_thread(function: Any, *arguments: Any) -> Any:
    """What `function` returned or raised in a thread of its own, while this hub turns."""
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(function(*arguments))
        except BaseException as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    with gevent.Timeout(PATIENCE):
        while thread.is_alive():
            gevent.sleep(0.001)
    return results[0]


CALLS = {
    "open": lambda peer, stream: peer.open(),
    "request": lambda peer, stream: peer.request(timeout=1.0),
    "notify": lambda peer, stream: peer.notify(),
    "ping": lambda peer, stream: peer.ping(),
    "close": lambda peer, stream: peer.close(),
    "serve": lambda peer, stream: peer.serve(),
    "reconnect_now": lambda peer, stream: peer.reconnect_now(),
    "with": lambda peer, stream: peer.__exit__(None, None, None),
    "send": lambda peer, stream: stream.send(1),
    "end": lambda peer, stream: stream.end(),
    "reply": lambda peer, stream: stream.reply(1),
    "send_headers": lambda peer, stream: stream.send_headers({}),
    "cancel": lambda peer, stream: stream.cancel(),
    "reset": lambda peer, stream: stream.reset(1),
    "result": lambda peer, stream: stream.result(),
    "receive": lambda peer, stream: stream.receive(timeout=1.0),
    "iterate": lambda peer, stream: list(stream),
}


@pytest.mark.parametrize("call", CALLS)
def test_every_call_from_another_thread_says_where_to_go(ends, call):
    made = ends()
    made.far.on_stream(Gate())
    stream = made.near.open()
    settle()
    error = in_thread(CALLS[call], made.near, stream)
    assert type(error) is RuntimeError
    assert "belongs to another thread" in str(error)
    assert "peer.run_threadsafe(fn)" in str(error)
    # Nothing has happened to either.
    assert made.near.is_open
    assert stream.state is StreamState.OPEN
    settle()
    assert made.sent_of("reset") == []
    assert made.near.ping() >= 0.0


def test_an_iteration_that_is_handed_to_another_thread_says_so_too(ends):
    made = ends()
    made.far.on_stream(Gate())
    stream = made.near.open()
    rows = iter(stream)
    error = in_thread(next, rows)
    assert type(error) is RuntimeError
    assert "peer.run_threadsafe(fn)" in str(error)


def test_what_may_be_looked_at_from_anywhere(ends):
    made = ends()
    made.far.on_stream(Gate())
    stream = made.near.open()
    settle()

    def look():
        peer = made.near
        return (
            peer.is_open,
            peer.is_closed,
            peer.is_dialer,
            len(peer.streams),
            peer.stats.streams_opened,
            stream.state,
        )

    assert in_thread(look) == (True, False, made.near.is_dialer, 1, 1, StreamState.OPEN)


def test_many_threads_that_call_leave_no_descriptors(make):
    made = make()

    def call():
        with pytest.raises(RuntimeError):
            made.near.request()

    in_thread(call)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
    assert len(os.listdir("/proc/self/fd")) <= before + 2


def test_looking_from_another_thread_starts_no_reader_there(make):
    left, right = memory_pair()
    peer = Peer(Options(codec=JsonCodec()), dialer=False)
    peer._attach(left)
    far = established_peer(right, Options(codec=JsonCodec()), dialer=True)
    far.on_stream(echo)
    stream = peer.open(1, end=True)

    def look():
        stream.closed.wait(0.01)
        gevent.wait([peer], timeout=0.01)
        gevent.get_hub().destroy()
        return peer._link._reader

    assert in_thread(look) is None
    assert stream.result(PATIENCE) == 1
    left.drop()
    settle()


# run_threadsafe


def test_run_threadsafe_hands_over_and_returns_the_value(ends):
    made = ends()
    made.far.on_stream(echo)
    assert in_thread(lambda: made.near.run_threadsafe(lambda: made.near.request(7)).result(PATIENCE)) == 7


def test_it_runs_in_a_greenlet_that_may_wait(ends):
    made, gate = ends(), Gate()

    def handle(payload, stream):
        gate(payload, stream)
        stream.reply(payload)

    made.far.on_stream(handle)
    here = threading.get_ident()
    futures: list[Future[Any]] = []
    in_thread(lambda: futures.append(made.near.run_threadsafe(lambda: (made.near.request(7), threading.get_ident()))))
    gate.reached()
    assert not futures[0].done()
    gate.open.set()
    settle()
    assert futures[0].result(0) == (7, here)


@pytest.mark.parametrize("error", [KeyError("mine"), gevent.Timeout(3), gevent.GreenletExit("stop"), SystemExit(3)])
def test_what_it_raises_belongs_to_the_thread_that_handed_it_over(ends, error):
    made = ends()

    def fails():
        raise error

    assert in_thread(lambda: made.near.run_threadsafe(fails).result(PATIENCE)) is error
    assert made.near.is_open


def test_errors_of_calls_come_through(ends):
    made = ends()

    def fails(payload, stream):
        raise ValueError("remote")

    made.far.on_stream(fails)
    error = in_thread(lambda: made.near.run_threadsafe(made.near.request).result(PATIENCE))
    assert isinstance(error, RemoteError)


def test_it_may_be_called_at_home_too_and_be_cancelled(ends):
    made, ran = ends(), []
    future = made.near.run_threadsafe(lambda: ran.append(1))
    assert future.cancel()
    second = made.near.run_threadsafe(lambda: ran.append(2))
    settle()
    assert ran == [2]
    assert second.done()
    with pytest.raises(CancelledError):
        future.result(0)


def test_many_threads_at_once(ends):
    made = ends()
    made.far.on_stream(echo)
    results: list[Any] = []

    def work(number):
        results.append(made.near.run_threadsafe(lambda: made.near.request(number)).result(PATIENCE))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    with gevent.Timeout(PATIENCE):
        while any(thread.is_alive() for thread in threads):
            gevent.sleep(0.001)
    assert sorted(results) == list(range(20))


def test_two_hubs_have_each_its_own_peers(make):
    made = make()
    made.far.on_stream(echo)

    def other_hub():
        from tests.runtime.ends import make_ends

        pair = make_ends("dialer")
        pair.far.on_stream(echo)
        try:
            with pytest.raises(RuntimeError):
                made.near.request(1)
            return [pair.near.request(number, timeout=PATIENCE) for number in range(10)]
        finally:
            pair.drop()
            gevent.sleep(0)
            gevent.get_hub().destroy()

    both = outcome(lambda: [made.near.request(number) for number in range(10)])
    assert in_thread(other_hub) == list(range(10))
    assert both.get(timeout=PATIENCE) == list(range(10))


def test_an_iteration_may_outlive_the_hub_that_it_belongs_to():
    kept = []

    def other_hub():
        pair = peer_pair()
        kept.append(iter(pair.dialer.open()))
        pair.drop()
        settle()
        gevent.get_hub().destroy()

    assert in_thread(other_hub) is None
    kept.clear()
    gc.collect()


# Forks: in a process of its own, so that nothing of pytest is forked

PRELUDE = """
import os, sys, gevent
import gevent.event
from gevent.pywsgi import WSGIServer
from muxws_green import Reconnect, WSGIApp, connect

done, tell_done = os.pipe()

def leave(code):
    sys.stdout.flush()
    os.write(tell_done, bytes([code]))
    os._exit(code)

def answer(payload, stream):
    if payload is None:
        gevent.event.Event().wait()
    stream.reply(payload)

def start_server(**options):
    # In a process of its own, which ends with this one.
    read, write = os.pipe()
    asked, alive = os.pipe()
    if os.fork() == 0:
        os.close(alive)
        app = WSGIApp(answer, heartbeat=None)
        server = WSGIServer(("127.0.0.1", 0), app, log=None)
        server.start()
        os.write(write, str(server.server_port).encode())
        gevent.os.tp_read(asked, 1)
        os._exit(0)
    os.close(asked)
    return int(os.read(read, 100))

def calls(peer, count):
    with gevent.Timeout(10):
        for number in range(count):
            assert peer.request(number) == number
            gevent.sleep(0.005)

def finished():
    # Not by its process id, for which gevent may have waited already.
    with gevent.Timeout(10):
        assert gevent.os.tp_read(done, 1) == bytes([0]), "the child failed"
"""

PARENT_UNHARMED = """
peer = connect(f"ws://127.0.0.1:{start_server()}/", ping_interval=0.02, ping_timeout=5.0)
told = []
peer.on_close(told.append)
waiting = gevent.spawn(peer.open().result)
calls(peer, 2)
first = peer.id
pid = FORK()
if pid == 0:
    for call in (peer.request, peer.open, peer.ping, peer.close, peer.serve, lambda: peer.run_threadsafe(int)):
        try:
            call()
        except RuntimeError as error:
            assert "process" in str(error) and "run_threadsafe" in str(error), error
        else:
            leave(1)
    assert not peer.is_open
    # The hub of the child turns, and its copies of our greenlets with it.
    gevent.sleep(0.3)
    assert told == [] and not waiting.dead
    leave(0)
calls(peer, 60)
finished()
calls(peer, 5)
assert peer.is_open and peer.id == first and told == [] and not waiting.dead
print("unharmed")
leave(0)
"""

ACCEPTOR_UNHARMED = """
peers = []
app = WSGIApp(answer, ping_interval=0.02, on_connect=peers.append)
server = WSGIServer(("127.0.0.1", 0), app, log=None)
server.start()
peer = connect(f"ws://127.0.0.1:{server.server_port}/")
calls(peer, 2)
pid = FORK()
if pid == 0:
    gevent.sleep(0.3)
    assert not peers[0].is_open
    leave(0)
calls(peer, 60)
finished()
calls(peer, 5)
assert peers[0].is_open and len(peers) == 1
print("unharmed")
leave(0)
"""

NO_SECOND_DIALLER = """
import gevent.socket
port = start_server()
peer = connect(f"ws://127.0.0.1:{port}/", reconnect=Reconnect(initial_delay=0.1, jitter=0.0))
calls(peer, 1)
told = []
peer.on_close(told.append)
lost = gevent.event.Event()
peer.on_close(lambda reason: lost.set())
# Between sockets.
peer._link.transport.abort()
lost.wait(5)
del told[:]
pid = FORK()
if pid == 0:
    gevent.sleep(0.4)
    assert peer.stats.reconnects == 0 and not peer.is_open and told == []
    leave(0)
with gevent.Timeout(10):
    while not peer.is_open:
        gevent.sleep(0.01)
calls(peer, 60)
finished()
assert peer.stats.reconnects == 1
print("unharmed")
leave(0)
"""

CHILD_LEAVES_QUIETLY = """
with connect(f"ws://127.0.0.1:{start_server()}/") as peer:
    calls(peer, 2)
    stream = peer.open()
    with stream:
        rows = iter(peer.open())
        pid = FORK()
        if pid == 0:
            del rows
            sys.exit(0)
        calls(peer, 20)
    del rows
assert pid != 0
print("unharmed")
leave(0)
"""

CHILD_DIALS_ANEW = """
port = start_server()
peer = connect(f"ws://127.0.0.1:{port}/", heartbeat=None)
calls(peer, 2)
over = connect(f"ws://127.0.0.1:{port}/")
link = over._link
over.close()
cause = link.cause
pid = FORK()
if pid == 0:
    assert link.cause is cause and not peer.is_open
    own = connect(f"ws://127.0.0.1:{port}/")
    assert own.id.split("-")[0] != peer.id.split("-")[0]
    calls(own, 20)
    own.close()
    leave(0)
calls(peer, 20)
finished()
print("unharmed")
leave(0)
"""

LEFT_AT_EXIT = """
peer = connect(f"ws://127.0.0.1:{start_server()}/")
calls(peer, 2)
stream = peer.open(end=True)
rows = iter(stream)
others = [iter(peer.open()) for _ in range(3)]
peer.request("x")
print("unharmed")
sys.exit(0)
"""

SCRIPTS = {
    "left at exit": LEFT_AT_EXIT,
    "parent unharmed": PARENT_UNHARMED,
    "acceptor unharmed": ACCEPTOR_UNHARMED,
    "no second dialler": NO_SECOND_DIALLER,
    "child leaves quietly": CHILD_LEAVES_QUIETLY,
    "child dials anew": CHILD_DIALS_ANEW,
}


@pytest.mark.slow
def test_one_that_cannot_be_disowned_keeps_no_other_from_it(monkeypatch, caplog):
    class Owner:
        def __init__(self, error=None):
            self.error, self.disowned = error, False

        def disown(self):
            if self.error is not None:
                raise self.error
            self.disowned = True

    owners = [Owner(), Owner(AttributeError("its hub is gone")), Owner()]
    monkeypatch.setattr(home_module, "_forks", home_module._forks)
    monkeypatch.setattr(home_module, "_groups", [set(owners[:2]), set(owners[2:])])
    home_module._forked()
    assert [owner.disowned for owner in owners] == [True, False, True]
    assert "could not be disowned" in caplog.text


@pytest.mark.parametrize("fork", ["os.fork", "gevent.os.fork"])
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_forked_child_leaves_its_parents_connections_alone(script, fork):
    source = PRELUDE + SCRIPTS[script].replace("FORK", fork)
    root = Path(__file__).parents[2]
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", source],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=root,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == "unharmed\n"
    assert result.stderr == ""
