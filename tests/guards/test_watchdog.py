"""A hanging test fails, shows every greenlet, and never holds up the run."""

from __future__ import annotations

import pytest

from tests.guards.watchdog import EXIT_HUNG

pytestmark = pytest.mark.slow

WAITING = """
import gevent
import gevent.socket
import pytest

def wait_for_nobody(end):
    # The reader's wait.
    return end.recv(1)

@pytest.mark.watchdog(0.2)
def test_hangs():
    left, right = gevent.socket.socketpair()
    other = gevent.spawn(wait_for_nobody, left)
    other.name = "reader 0-1"
    try:
        right.recv(1)
    finally:
        other.kill()
        left.close()
        right.close()

def test_next():
    pass
"""

BLOCKED = """
import gevent
import pytest
import threading

def wait_for_nobody():
    gevent.get_hub().switch()

@pytest.mark.watchdog(0.2)
def test_blocks_the_hub():
    gevent.spawn(wait_for_nobody)
    gevent.sleep(0)
    threading.Event().wait()
"""

STUBBORN = """
import gevent.socket
import pytest

@pytest.mark.watchdog(0.2)
def test_swallows_its_failure():
    left, right = gevent.socket.socketpair()
    while True:
        try:
            left.recv(1)
        except BaseException:
            print("again")
"""

TIDY_UP = """
import gevent.socket
import pytest

@pytest.fixture
def pair():
    left, right = gevent.socket.socketpair()
    yield left
    try:
        left.recv(1)
    finally:
        left.close()
        right.close()

@pytest.mark.watchdog(0.2)
def test_hangs_twice(pair):
    pair.recv(1)

def test_next():
    pass
"""

SHORT_GRACE = """
import tests.guards.watchdog
tests.guards.watchdog.GRACE = 0.2
"""


def test_a_hanging_test_fails_and_shows_every_greenlet(guarded) -> None:
    result = guarded(WAITING)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*test_hangs hung for 0.2 s*"])
    shown = result.stdout.str()
    assert "reader 0-1" in shown
    assert "return end.recv(1)" in shown
    assert "right.recv(1)" in shown


def test_a_test_that_blocks_the_hub_ends_the_process_with_a_dump(guarded) -> None:
    result = guarded(SHORT_GRACE + BLOCKED)
    assert result.ret == EXIT_HUNG
    shown = result.stderr.str()
    assert "test_blocks_the_hub hung for 0.2 s and cannot be ended" in shown
    assert "wait_for_nobody" in shown
    assert "threading.Event().wait()" in shown


def test_a_test_that_swallows_its_failure_ends_the_process(guarded) -> None:
    result = guarded(SHORT_GRACE + STUBBORN)
    assert result.ret == EXIT_HUNG
    assert "test_swallows_its_failure hung" in result.stderr.str()


def test_what_tidies_up_behind_a_hanging_test_is_ended_too(guarded) -> None:
    result = guarded(SHORT_GRACE.replace("0.2", "1.0") + TIDY_UP)
    result.assert_outcomes(passed=1, failed=1, errors=1)


def test_the_limit_is_a_setting(guarded) -> None:
    source = WAITING.replace("@pytest.mark.watchdog(0.2)", "")
    result = guarded(source, "--override-ini=watchdog_seconds=0.3")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*test_hangs hung for 0.3 s*"])
