"""The fake clock over real sockets: exact times, and no jump over anything that can still happen."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import itertools
import math
import os
import random
import socket
import struct
import subprocess
import sys
import termios
import textwrap
import threading
import time
import weakref

import gevent
import pytest
from gevent import socket as gevent_socket
from gevent.event import Event
from gevent.exceptions import LoopExit
from gevent.server import StreamServer
from hypothesis import given
from hypothesis import strategies as st

from muxws_green.testing.clock import FakeClock, NoProgressError, settle
from tests.transports.raw import client_context, server_context


@pytest.fixture(autouse=True)
def _bounded():
    # Not counted by the loop, which is to notice when nothing else is left.
    with gevent.Timeout(10, ref=False):
        yield


@pytest.fixture
def clock():
    settle()
    loop = gevent.get_hub().loop
    before = loop.activecnt
    with FakeClock() as clock:
        yield clock
    settle()
    assert loop.activecnt == before


@pytest.fixture
def manual():
    with FakeClock(autojump=False) as clock:
        yield clock


def compute(seconds):
    """Take the processor for longer than any idleness that makes the clock jump."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


@contextlib.contextmanager
def echo_server(**tls):
    def echo(sock, address):
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(OSError):
            while data := sock.recv(4096):
                sock.sendall(data)

    server = StreamServer(("127.0.0.1", 0), echo, **tls)
    server.start()
    try:
        yield server.address
    finally:
        server.stop()


def connect(address):
    sock = gevent_socket.create_connection(address)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def pass_real_time(seconds):
    Event().wait(seconds)


def run_child(source, **variables):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), **variables}
    command = [sys.executable, "-c", textwrap.dedent(source)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, check=False)


def ping_pong(sock, clock, times, pause):
    """Exchange a byte now and after each of four pauses; note when each answer came."""
    for last in (False, False, False, False, True):
        sock.sendall(b"?")
        assert sock.recv(1) == b"?"
        times.append(clock.now())
        if not last:
            clock.sleep(pause)


# Exact times


def test_fifty_connections_over_loopback_at_exact_times(clock):
    times = []
    began = time.monotonic()
    with echo_server() as address:
        socks = [connect(address) for _ in range(50)]
        gevent.joinall([gevent.spawn(ping_pong, sock, clock, times, 5.0) for sock in socks], raise_error=True)
        for sock in socks:
            sock.close()
    assert sorted(times) == [0.0] * 50 + [5.0] * 50 + [10.0] * 50 + [15.0] * 50 + [20.0] * 50
    assert time.monotonic() - began < 5


def test_each_connection_at_its_own_pace(clock):
    paces = [0.1, 0.25, 1.0, 7.0, 3600.0]
    times = {pace: [] for pace in paces}
    with echo_server() as address:
        socks = [connect(address) for _ in paces]
        greenlets = [
            gevent.spawn(ping_pong, sock, clock, times[pace], pace) for sock, pace in zip(socks, paces, strict=True)
        ]
        gevent.joinall(greenlets, raise_error=True)
        for sock in socks:
            sock.close()
    assert times == {pace: list(itertools.accumulate([0.0] + [pace] * 4)) for pace in paces}


def test_tls_with_its_handshakes(clock):
    times = []
    with echo_server(ssl_context=server_context()) as address:

        def client():
            with client_context().wrap_socket(connect(address), server_hostname="127.0.0.1") as sock:
                ping_pong(sock, clock, times, 60.0)
                assert sock.version() is not None

        gevent.joinall([gevent.spawn(client) for _ in range(5)], raise_error=True)
    assert sorted(times) == [0.0] * 5 + [60.0] * 5 + [120.0] * 5 + [180.0] * 5 + [240.0] * 5


def test_a_callback_sees_exactly_the_time_that_it_was_made_for(clock):
    seen = {}
    delays = [0.1, 0.2, 0.30000000000000004, 1e-9, 1 / 3, 86400.0]
    for delay in delays:
        clock.call_later(delay, lambda delay=delay: seen.update({delay: clock.now()}))
    clock.sleep(1e6)
    assert seen == {delay: delay for delay in delays}
    assert clock.now() == 1e6


def test_time_starts_where_it_was_told():
    with FakeClock(start=100.5) as clock:
        assert clock.now() == 100.5
        clock.sleep(1.0)
        assert clock.now() == 101.5


# The order of things


def test_timers_of_one_time_run_as_they_were_made(clock):
    order = []
    for name in "abc":
        clock.call_later(1.0, lambda name=name: order.append(name))
    gevent.spawn(lambda: (clock.sleep(1.0), order.append("greenlet")))
    gevent.sleep(0)
    clock.call_later(1.0, lambda: order.append("d"))
    clock.sleep(1.0)
    assert order == ["a", "b", "c", "greenlet", "d"]


def test_what_a_timer_makes_runnable_runs_before_time_moves_on(clock):
    order = []

    def note(name):
        order.append((name, clock.now()))

    def first():
        note("first")
        clock.call_later(0, lambda: (note("of zero"), clock.call_later(0, lambda: note("of zero again"))))
        gevent.spawn(note, "greenlet")

    clock.call_later(1.0, first)
    clock.call_later(1.0, lambda: note("second"))
    clock.call_later(1.0 + 2**-40, lambda: note("a moment later"))
    clock.sleep(2.0)
    later = 1.0 + 2**-40
    assert order == [
        ("first", 1.0),
        ("second", 1.0),
        ("of zero", 1.0),
        ("greenlet", 1.0),
        ("of zero again", 1.0),
        ("a moment later", later),
    ]


def test_a_wait_too_short_for_the_time_to_change_ends_at_once():
    with FakeClock(start=2.0**53) as clock:
        clock.sleep(0.5)
        assert clock.now() == 2.0**53


def test_sleeping_0_yields(clock):
    order = []
    gevent.spawn(order.append, "other")
    clock.sleep(0)
    assert order == ["other"]
    assert clock.now() == 0.0


def test_a_cancelled_timer_makes_no_jump(clock):
    timer = clock.call_later(5.0, pytest.fail)
    assert clock.timers() == [timer]
    timer.cancel()
    timer.cancel()
    assert clock.timers() == []
    with pytest.raises(LoopExit):
        Event().wait()
    assert clock.now() == 0.0


def test_no_jump_goes_to_a_cancelled_timer_on_the_way():
    with FakeClock(max_jumps=1) as clock:
        clock.call_later(5.0, pytest.fail).cancel()
        later = clock.call_later(7.0, pytest.fail)
        clock.call_later(6.0, pytest.fail).cancel()
        clock.call_later(0.0, later.cancel)
        clock.sleep(10.0)


def test_a_timer_may_be_cancelled_when_its_time_has_come_and_after_it_ran(clock):
    timers = []
    ran = []
    clock.call_later(1.0, lambda: timers[0].cancel())
    timers.append(clock.call_later(1.0, lambda: ran.append("cancelled")))
    itself = clock.call_later(1.0, lambda: (itself.cancel(), ran.append("itself")))
    clock.sleep(2.0)
    itself.cancel()
    assert ran == ["itself"]


def test_who_is_killed_while_sleeping_leaves_no_timer(clock):
    greenlet = gevent.spawn(clock.sleep, 5.0)
    gevent.sleep(0)
    assert len(clock.timers()) == 1
    greenlet.kill()
    assert clock.timers() == []


def test_cancelled_timers_do_not_pile_up(clock):
    clock.call_later(1.0, int)
    for _ in range(5000):
        clock.call_later(5.0, int).cancel()
    assert len(clock._heap) < 200
    kept = [clock.call_later(5.0, int) for _ in range(50)]
    for timer in [clock.call_later(5.0, int) for _ in range(5000)]:
        timer.cancel()
    assert len(clock._heap) < 250
    assert clock.timers()[1:] == kept
    clock.sleep(20.0)
    assert clock._heap == []
    assert not clock._sleeping


def test_the_order_outlives_tidying_up(clock):
    ran = []
    times = random.Random(1).sample(range(400), 400)
    timers = [clock.call_later(float(seconds), lambda: ran.append(clock.now())) for seconds in times]
    for timer in timers:
        if timer.when % 10:
            timer.cancel()
    clock.advance(1000.0)
    assert ran == [float(number) for number in range(0, 400, 10)]


def test_an_error_in_a_callback_goes_to_the_hub_and_the_others_run(clock, expected_hub_errors):
    ran = []
    clock.call_later(1.0, lambda: 1 / 0)
    clock.call_later(1.0, lambda: ran.append(clock.now()))
    clock.sleep(2.0)
    assert ran == [1.0]
    [found] = expected_hub_errors
    assert isinstance(found.error, ZeroDivisionError)


@pytest.mark.slow
@pytest.mark.parametrize("loop", ["libev-cext", "libev-cffi"])
@pytest.mark.parametrize("pause", ["0", "0.001"])
def test_either_build_of_libev_will_do(loop, pause):
    """They differ in what comes first in a turn: greenlets that can run, or watchers."""
    done = run_child(
        """
        import os, time, gevent
        from muxws_green.testing import FakeClock

        def compute():
            for _ in range(3):
                gevent.sleep(float(os.environ["PAUSE"]))
                end = time.monotonic() + 0.04
                while time.monotonic() < end:
                    pass
            return clock.now(), time.monotonic()

        with gevent.Timeout(10), FakeClock(idle=0.03) as clock:
            work = gevent.spawn(compute)
            clock.sleep(1.0)
            now, ended = work.get()
            print(type(gevent.get_hub().loop).__module__, now, time.monotonic() - ended >= 0.03)
        with gevent.Timeout(10), FakeClock(max_jumps=50) as clock:
            try:
                while True:
                    clock.sleep(1.0)
            except RuntimeError:
                print(clock.now())
        """,
        GEVENT_LOOP=loop,
        PAUSE=pause,
    )
    assert done.stdout.split() == [f"gevent.libev.core{loop[6:]}", "0.0", "True", "50.0"]
    assert done.returncode == 0


@pytest.mark.slow
def test_another_loop_is_refused_with_the_way_out():
    done = run_child("from muxws_green.testing import FakeClock; FakeClock()", GEVENT_LOOP="libuv-cffi")
    assert "set GEVENT_LOOP=libev-cext" in done.stderr
    assert done.returncode == 1


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(
            st.sampled_from([0.0, 0.5, 1.0, 1.5]),
            st.sampled_from(["nothing", "another", "cancel the last"]),
            st.sampled_from([0.0, 0.5, 1.0]),
        ),
        max_size=6,
    )
)
def test_any_schedule_runs_as_a_sorted_list_would(plan):
    expected = []
    agenda = []
    made = itertools.count()

    def model(when, action, more):
        agenda.append((when, next(made), action, more))

    for when, action, more in plan:
        model(when, action, more)
    while agenda:
        agenda.sort()
        when, _, action, more = agenda.pop(0)
        expected.append(when)
        if action == "another":
            model(when + more, "nothing", 0.0)
        elif action == "cancel the last" and agenda:
            agenda.remove(max(agenda, key=lambda entry: entry[1]))

    happened = []
    live = {}
    with FakeClock(idle=0.001) as clock:

        def schedule(delay, action, more):
            number = len(numbers)
            numbers.append(number)

            def run():
                del live[number]
                happened.append(clock.now())
                if action == "another":
                    schedule(more, "nothing", 0.0)
                elif action == "cancel the last" and live:
                    live.pop(max(live)).cancel()

            live[number] = clock.call_later(delay, run)

        numbers = []
        for delay, action, more in plan:
            schedule(delay, action, more)
        clock.sleep(100.0)
    assert happened == expected


# What it does not jump over


def test_greenlets_that_can_run_run_first(clock):
    """Each turn of these takes longer than the idleness after which the clock jumps."""
    clock.call_later(1.0, pytest.fail)

    def work():
        for _ in range(10):
            compute(0.004)
            gevent.sleep(0)

    gevent.joinall([gevent.spawn(work) for _ in range(3)])
    assert clock.now() == 0.0
    clock.timers()[0].cancel()


def test_a_greenlet_that_makes_a_timer_may_go_on_computing():
    done = []
    woken = Event()

    def work():
        clock.call_later(1.0, lambda: (done.append(time.monotonic()), woken.set()))
        compute(0.05)
        assert clock.now() == 1.0
        done.append(time.monotonic())

    with FakeClock(idle=0.03) as clock:
        clock.sleep(1.0)
        pass_real_time(0.001)
        gevent.spawn(work)
        woken.wait()
    ended, woken = done
    assert woken - ended >= 0.03


@pytest.mark.parametrize("what", ["a socket", "a real timer"])
def test_what_happens_just_when_the_wait_ends_comes_first_and_is_progress(what):
    ours, theirs = gevent_socket.socketpair()
    loop = gevent.get_hub().loop
    times = []

    def delay_the_wait():
        if clock.now() == 0.0 and not times:
            timer.start(lambda: what == "a real timer" and gevent.spawn(note))
            compute(0.01)
            theirs.send(b"!")

    def note():
        times.append(clock.now())

    # Of the watchers of one priority the one that was started first runs last, so this is after the clock's own.
    delay = loop.prepare(priority=loop.MINPRI)
    delay.start(delay_the_wait)
    timer = loop.timer(0.001)
    with ours, theirs, FakeClock(start=-1.0, max_jumps=1) as clock:
        clock.call_later(100.0, pytest.fail)
        if what == "a socket":
            gevent.spawn(lambda: (ours.recv(1), note()))
        clock.sleep(1.0)
        clock.sleep(1.0)
    assert times == [0.0]
    timer.close()
    delay.close()


def test_the_hub_has_to_be_idle_for_a_moment_of_real_time():
    with FakeClock(idle=0.03) as clock:
        began = time.monotonic()
        clock.sleep(1000.0)
        assert time.monotonic() - began >= 0.03


@pytest.mark.parametrize("work", [0.0, 0.05])
def test_whatever_happens_begins_that_moment_anew(work):
    ours, theirs = gevent_socket.socketpair()
    with ours, theirs, FakeClock(idle=0.03) as clock:
        done = []

        def reader():
            assert ours.recv(1) == b"!"
            compute(work)
            done.append(time.monotonic())

        gevent.spawn(reader)
        timer = gevent.get_hub().loop.timer(0.02)
        timer.start(lambda: theirs.send(b"!"))
        clock.sleep(1000.0)
        timer.close()
        assert time.monotonic() - done[0] >= 0.03


def test_a_task_of_the_thread_pool_is_waited_for(clock):
    release = threading.Event()
    late = clock.call_later(1.0, pytest.fail)
    result = gevent.get_hub().threadpool.spawn(release.wait, 5)
    timer = gevent.get_hub().loop.timer(0.03)
    timer.start(release.set)
    assert result.get() is True
    assert clock.now() == 0.0
    late.cancel()
    timer.close()
    clock.sleep(1.0)


def test_many_short_tasks_of_the_thread_pool_are_never_jumped_over(clock):
    """The end of a task and the end of our wait may coincide."""
    pool = gevent.get_hub().threadpool
    late = clock.call_later(1.0, pytest.fail)
    for number in range(60):
        pool.apply(compute, (0.0001 * (number % 30),))
        assert clock.now() == 0.0
    late.cancel()


def test_a_name_is_looked_up_first(clock):
    late = clock.call_later(1.0, pytest.fail)
    assert gevent_socket.getaddrinfo("localhost", 80)
    assert clock.now() == 0.0
    late.cancel()


def test_it_does_not_jump_while_watched_bytes_become_fewer():
    with FakeClock(patience=0.0) as clock:
        left = iter([*range(500, 0, -50), 0])
        asked = []
        watch = clock.watch(lambda: asked.append(next(left, 0)) or asked[-1])
        clock.sleep(1.0)
        assert asked == [*range(500, 0, -50), 0]
        watch.cancel()
        clock.sleep(1.0)
        assert len(asked) == 11
        watch.cancel()


def test_bytes_that_stand_still_get_patience_and_then_time_goes_on():
    with FakeClock(patience=0.05) as clock:
        clock.watch(lambda: 1000)
        began = time.monotonic()
        clock.sleep(60.0)
        assert time.monotonic() - began >= 0.05


def test_bytes_that_stand_still_hold_a_short_jump_up_for_a_part_of_its_length():
    with FakeClock(patience=60.0) as clock:
        clock.watch(lambda: 1000)
        began = time.monotonic()
        clock.sleep(1.0)
        assert time.monotonic() - began >= 0.05
        for _ in range(20):
            clock.sleep(1.0)


def test_settling_gives_bytes_that_stand_still_their_patience():
    with FakeClock(patience=0.05) as clock:
        clock.watch(lambda: 1000)
        began = time.monotonic()
        settle(clock)
        assert time.monotonic() - began >= 0.05


@pytest.mark.parametrize("pending", [None, 0])
def test_nothing_pending_or_not_known_keeps_nobody(pending):
    with FakeClock(patience=60.0) as clock:
        clock.watch(lambda: pending)
        clock.sleep(100_000.0)


def test_a_watch_that_raises_is_forgotten(clock, expected_hub_errors):
    clock.watch(lambda: 1 / 0)
    clock.sleep(3.0)
    assert [type(found.error) for found in expected_hub_errors] == [ZeroDivisionError]


def unacknowledged(sock):
    return struct.unpack("i", fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(4)))[0]


def test_another_thread_that_takes_our_bytes_takes_them_all_before_the_next_timer():
    total = 8_000_000
    taken = []
    with FakeClock(patience=2.0) as clock, contextlib.closing(socket.create_server(("127.0.0.1", 0))) as listener:
        ours = connect(listener.getsockname())
        theirs, _ = listener.accept()
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)

        def reader():
            pause = threading.Event()
            with theirs:
                while sum(taken) < total:
                    taken.append(len(theirs.recv(100_000)))
                    pause.wait(0.001)

        thread = threading.Thread(target=reader)
        clock.watch(lambda: unacknowledged(ours))
        thread.start()
        writer = gevent.spawn(ours.sendall, bytes(total))
        clock.sleep(1000.0)
        # What the other kernel has acknowledged its reader may still have before it.
        assert writer.ready()
        assert unacknowledged(ours) == 0
        thread.join(5)
        assert sum(taken) == total
        ours.close()


def test_a_remote_that_never_reads_does_not_stop_time(clock):
    with contextlib.closing(gevent_socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        with connect(listener.getsockname()) as ours:
            theirs, _ = listener.accept()
            clock.watch(lambda: unacknowledged(ours))
            writer = gevent.spawn(ours.sendall, bytes(20_000_000))
            clock.sleep(1.0)
            assert not writer.ready()
            assert unacknowledged(ours) > 0
            writer.kill()
            theirs.close()


# Jumps without progress


def test_jumps_without_progress_come_to_an_end():
    assert FakeClock.__init__.__kwdefaults__["max_jumps"] == 10_000
    with FakeClock(max_jumps=25) as clock:

        def poll():
            while True:
                clock.sleep(2.0)

        poller = gevent.spawn(poll)
        gevent.sleep(0)
        for number in range(20):
            clock.call_later(1000.0 + number, pytest.fail)
        with pytest.raises(NoProgressError) as caught:
            Event().wait()
        poller.kill()
        assert clock.now() == 50.0
        lines = str(caught.value).splitlines()
        assert lines[0].startswith("25 jumps, to 50.0,")
        assert "at 52.0" in lines[1]
        assert "at 1008.0" in lines[10]
        assert lines[11:] == ["  and 11 more"]


def test_it_is_raised_where_the_test_runs_and_the_clock_can_be_used_afterwards():
    with FakeClock(max_jumps=3) as clock:
        with pytest.raises(NoProgressError):
            for _ in range(10):
                clock.sleep(1.0)
        assert clock.now() == 3.0
        clock.sleep(1.0)
        assert clock.now() == 4.0


def test_no_jump_at_all_may_be_allowed():
    with FakeClock(max_jumps=0) as clock, pytest.raises(NoProgressError):
        clock.sleep(1.0)


def test_traffic_is_progress():
    with FakeClock(max_jumps=3) as clock, echo_server() as address, connect(address) as sock:
        for _ in range(12):
            clock.sleep(1.0)
            sock.sendall(b"?")
            assert sock.recv(1) == b"?"
        assert clock.now() == 12.0


def test_traffic_while_another_timer_waits_is_progress():
    with FakeClock(max_jumps=3) as clock, echo_server() as address, connect(address) as sock:
        clock.call_later(1000.0, pytest.fail)
        for _ in range(12):
            clock.sleep(1.0)
            sock.sendall(b"?")
            assert sock.recv(1) == b"?"


def test_a_task_of_the_pool_is_progress():
    with FakeClock(max_jumps=3) as clock:
        for _ in range(12):
            clock.sleep(1.0)
            gevent.get_hub().threadpool.apply(int)


def test_what_ends_a_time_without_timers_is_progress():
    event = Event()
    timer = gevent.get_hub().loop.timer(0.001)
    with FakeClock(max_jumps=3) as clock:
        for _ in range(12):
            clock.sleep(1.0)
            timer.start(event.set)
            event.wait()
            event.clear()
    timer.close()


def test_moving_bytes_are_progress():
    with FakeClock(max_jumps=3, patience=0.0) as clock:
        numbers = itertools.count(1)
        clock.watch(lambda: next(numbers) // 2)
        for _ in range(12):
            clock.sleep(1.0)


@pytest.mark.parametrize("by_hand", [FakeClock.jump, FakeClock.advance])
def test_moving_time_by_hand_is_progress(by_hand):
    with FakeClock(max_jumps=3) as clock:
        for _ in range(4):
            clock.sleep(1.0)
            clock.sleep(1.0)
            by_hand(clock, 1.0)


# By hand


def test_without_autojump_time_stands_still(manual):
    manual.call_later(1.0, pytest.fail)
    settle(manual)
    pass_real_time(0.02)
    assert manual.now() == 0.0


def test_advance_goes_from_timer_to_timer(manual):
    seen = []

    def sleeper():
        for _ in range(3):
            manual.sleep(1.0)
            seen.append(manual.now())

    gevent.spawn(sleeper)
    manual.call_later(1.5, lambda: seen.append(manual.now()))
    manual.call_later(2.75, pytest.fail)
    manual.advance(2.5)
    assert seen == [1.0, 1.5, 2.0]
    assert manual.now() == 2.5
    manual.timers()[0].cancel()
    manual.advance(0.5)
    assert seen == [1.0, 1.5, 2.0, 3.0]


def test_advance_waits_for_what_sockets_bring(manual):
    times = []
    with echo_server() as address, connect(address) as sock:
        gevent.spawn(ping_pong, sock, manual, times, 5.0)
        manual.advance(0.0)
        assert times == [0.0]
        manual.advance(12.0)
        assert times == [0.0, 5.0, 10.0]
        manual.advance(8.0)
        assert times == [0.0, 5.0, 10.0, 15.0, 20.0]


def test_a_jump_is_a_hub_that_was_blocked(manual):
    seen = []
    for delay in (2.0, 1.0, 3.0, 11.0):
        manual.call_later(delay, lambda delay=delay: seen.append((delay, manual.now())))
    manual.jump(10.0)
    assert seen == []
    settle(manual)
    assert seen == [(1.0, 10.0), (2.0, 10.0), (3.0, 10.0)]


def test_a_jump_may_come_from_a_callback_and_meet_autojump(clock):
    seen = []
    clock.call_later(1.0, lambda: clock.jump(4.0))
    clock.call_later(2.0, lambda: seen.append(clock.now()))
    clock.sleep(6.0)
    assert seen == [5.0]
    assert clock.now() == 6.0


def test_advance_never_takes_time_back(clock):
    clock.call_later(1.0, lambda: clock.jump(10.0))
    clock.advance(2.0)
    assert clock.now() == 11.0


# Held


def test_a_held_clock_does_not_jump(clock):
    ran = []
    clock.call_later(1.0, lambda: ran.append(clock.now()))
    with clock.held():
        with clock.held():
            pass_real_time(0.01)
        pass_real_time(0.01)
        assert (ran, clock.now()) == ([], 0.0)
    pass_real_time(0.02)
    assert ran == [1.0]


def test_a_clock_that_is_not_held_any_more_keeps_the_loop_alive(clock):
    ran = Event()
    with clock.held():
        clock.call_later(1.0, ran.set)
        pass_real_time(0.001)
    ran.wait()


@pytest.mark.parametrize("how", [settle, lambda clock: settle(), lambda clock: clock.settle()])
def test_settling_lets_everything_happen_but_time(clock, how):
    times = []
    with echo_server() as address, connect(address) as sock:
        greenlet = gevent.spawn(ping_pong, sock, clock, times, 5.0)
        how(clock)
        how(clock)
        assert times == [0.0]
        greenlet.join()
        assert clock.now() == 20.0


def test_settling_without_a_clock():
    ours, theirs = gevent_socket.socketpair()
    got = []
    with ours, theirs:
        gevent.spawn(lambda: got.append(theirs.recv(1)))
        gevent.spawn(lambda: (gevent.sleep(0), ours.send(b"!")))
        settle()
        assert got == [b"!"]


def test_several_may_settle_at_once(clock):
    gevent.joinall([gevent.spawn(settle) for _ in range(3)], raise_error=True)
    clock.close()
    gevent.joinall([gevent.spawn(settle) for _ in range(3)], raise_error=True)


@pytest.mark.parametrize("how", [lambda clock: clock.settle(timeout=0.03), lambda clock: clock.advance(1.0, 0.03)])
def test_what_never_rests_cannot_settle(clock, how):
    def restless():
        while True:
            gevent.sleep(0)

    greenlet = gevent.spawn(restless)
    with pytest.raises(TimeoutError, match=r"for 0\.03 real seconds"):
        how(clock)
    greenlet.kill()


# The end


def test_a_closed_clock_leaves_nothing_in_the_loop():
    loop = gevent.get_hub().loop
    before = loop.activecnt
    clock = FakeClock()
    clock.call_later(1.0, pytest.fail)
    assert loop.activecnt > before
    gevent.sleep(0)
    clock.close()
    clock.close()
    gevent.sleep(0)
    assert loop.activecnt == before
    assert clock.timers() == []


def test_a_clock_may_be_closed_while_it_is_held():
    loop = gevent.get_hub().loop
    before = loop.activecnt
    clock = FakeClock()
    with clock.held():
        clock.call_later(1.0, pytest.fail)
        clock.close()
    gevent.sleep(0)
    assert loop.activecnt == before


def test_a_clock_may_be_closed_by_its_own_timer():
    clock = FakeClock()
    clock.call_later(1.0, clock.close)
    clock.call_later(1.0, pytest.fail)
    clock.call_later(2.0, pytest.fail)
    with pytest.raises(LoopExit):
        Event().wait()


def test_who_sleeps_or_settles_learns_that_it_was_closed():
    learned = []

    def wait(how, *arguments):
        with pytest.raises(RuntimeError, match="the fake clock was closed"):
            how(*arguments)
        learned.append(how)

    with FakeClock(autojump=False) as clock:
        greenlets = [gevent.spawn(wait, clock.sleep, 1.0), gevent.spawn(wait, clock.settle)]
        gevent.sleep(0)
        clock.close()
        gevent.joinall(greenlets)
    assert learned == [clock.sleep, clock.settle]


@pytest.mark.parametrize(
    "call",
    [
        lambda clock: clock.sleep(1.0),
        lambda clock: clock.sleep(0.0),
        lambda clock: clock.call_later(1.0, int),
        lambda clock: clock.jump(1.0),
        lambda clock: clock.advance(1.0),
        lambda clock: clock.settle(),
    ],
)
def test_a_closed_clock_says_so(call):
    clock = FakeClock()
    timer = clock.call_later(1.0, pytest.fail)
    clock.close()
    with pytest.raises(RuntimeError, match="closed"):
        call(clock)
    timer.cancel()
    assert clock.now() == 0.0


def test_a_clock_that_is_forgotten_goes_away():
    clock = FakeClock()
    clock.sleep(1.0)
    pass_real_time(0.001)
    gone = weakref.ref(clock)
    del clock
    FakeClock().close()
    gc.collect()
    assert gone() is None


def test_a_hub_has_one_clock(clock):
    with pytest.raises(RuntimeError, match="has a fake clock already"):
        FakeClock()
    clock.close()
    FakeClock().close()


def test_a_clock_belongs_to_its_hub(clock):
    raised = []

    def elsewhere():
        hub = gevent.get_hub()
        for call in (clock.sleep, lambda seconds: clock.call_later(seconds, int), clock.jump, clock.advance):
            try:
                call(1.0)
            except RuntimeError as error:
                raised.append(str(error))
        with FakeClock() as own:
            own.sleep(5.0)
            raised.append(own.now())
        hub.destroy(destroy_loop=True)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join(5)
    assert raised == ["a fake clock belongs to the hub that made it; this thread has another one"] * 4 + [5.0]


# Arguments


@pytest.mark.parametrize("seconds", [-1.0, math.inf, math.nan])
def test_what_is_not_a_wait_is_refused(clock, seconds):
    for call in (clock.sleep, lambda seconds: clock.call_later(seconds, int), clock.jump, clock.advance):
        with pytest.raises(ValueError, match="finite number of seconds"):
            call(seconds)
    assert clock.timers() == []


@pytest.mark.parametrize(
    "arguments",
    [
        {"start": math.nan},
        {"start": math.inf},
        {"idle": 0.0},
        {"idle": -0.1},
        {"idle": math.nan},
        {"patience": -1.0},
        {"patience": math.nan},
        {"max_jumps": -1},
    ],
)
def test_what_cannot_be_is_refused(arguments):
    with pytest.raises(ValueError):  # noqa: PT011
        FakeClock(**arguments)
    FakeClock().close()
