"""What a test leaves behind fails it: greenlets and descriptors where it is asked for, sockets always."""

from __future__ import annotations

import pytest

from tests.guards.inner import verdicts

pytestmark = pytest.mark.slow

LEAKING = """
import gc
import os
import gevent
import gevent.event
import gevent.socket
import pytest
import tests.guards.leaks

tests.guards.leaks.PATIENCE = 0.5
kept = []
gate = gevent.event.Event()

def start(name):
    greenlet = gevent.spawn(gate.wait)
    greenlet.name = name
    return greenlet

def test_unmarked():
    kept.append(os.dup(1))
    start("reader 0-0")

@pytest.mark.leaks
def test_greenlet():
    start("reader 0-1")

@pytest.mark.leaks
def test_descriptor():
    kept.append(os.dup(1))

@pytest.mark.leaks
def test_ends_a_moment_later():
    greenlet = gevent.spawn(gevent.sleep, 0.01)
    greenlet.name = "writer 0-2"

@pytest.mark.leaks
def test_of_somebody_else():
    start("janitor 0-3")

@pytest.fixture
def server():
    listener = gevent.socket.socket()
    greenlet = start("reader 0-4")
    yield listener
    greenlet.kill()
    listener.close()

@pytest.mark.leaks
def test_tidied_up_by_a_fixture(server):
    pass

def test_socket_that_nobody_closes():
    gevent.socket.socket()
    gc.collect()
"""


def test_what_is_left_behind_fails_the_test(guarded) -> None:
    result = guarded(LEAKING)
    assert verdicts(result) == {
        "test_unmarked": ["PASSED"],
        "test_greenlet": ["PASSED", "ERROR"],
        "test_descriptor": ["PASSED", "ERROR"],
        "test_ends_a_moment_later": ["PASSED"],
        "test_of_somebody_else": ["PASSED"],
        "test_tidied_up_by_a_fixture": ["PASSED"],
        "test_socket_that_nobody_closes": ["FAILED"],
    }
    shown = result.stdout.str()
    assert "left behind: greenlets ['reader 0-1'], descriptors []" in shown
    assert "ResourceWarning: unclosed <socket" in shown


def test_all_tests_can_be_checked(guarded) -> None:
    result = guarded(LEAKING, "--leaks", "-k", "test_unmarked or test_ends")
    assert verdicts(result) == {"test_unmarked": ["PASSED", "ERROR"], "test_ends_a_moment_later": ["PASSED"]}
