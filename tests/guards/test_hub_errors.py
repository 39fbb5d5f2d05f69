"""A greenlet that dies of an exception fails the test during which it does."""

from __future__ import annotations

import pytest

from tests.guards.inner import verdicts

pytestmark = pytest.mark.slow

DYING = """
import gevent
import gevent.event
import pytest

gate = gevent.event.Event()

def die():
    raise ValueError("so it goes")

def die_later():
    gate.wait()
    die()

def test_dies():
    gevent.spawn(die)

def test_dies_although_somebody_looks():
    with pytest.raises(ValueError):
        gevent.spawn(die).get()

def test_starts_it():
    gevent.spawn(die_later)

def test_lets_it_die():
    gate.set()

def test_fails_too():
    gevent.spawn(die)
    gevent.sleep(0)
    assert False, "its own failure"

def test_is_killed():
    gevent.spawn(gevent.sleep, 3600).kill()

def test_expects_it(expected_hub_errors):
    gevent.spawn(die)
    gevent.sleep(0)
    (error,) = expected_hub_errors
    assert str(error.error) == "so it goes"

def test_expects_in_vain(expected_hub_errors):
    pass

def test_in_a_callback():
    gevent.get_hub().loop.run_callback(die)

@pytest.fixture
def dies_behind():
    yield
    gevent.spawn(die)

def test_in_a_fixture(dies_behind):
    pass

def test_next():
    pass
"""


def test_each_kind_of_death(guarded) -> None:
    result = guarded(DYING)
    assert verdicts(result) == {
        "test_dies": ["FAILED"],
        "test_dies_although_somebody_looks": ["FAILED"],
        "test_starts_it": ["PASSED"],
        "test_lets_it_die": ["FAILED"],
        "test_fails_too": ["FAILED"],
        "test_is_killed": ["PASSED"],
        "test_expects_it": ["PASSED"],
        "test_expects_in_vain": ["FAILED"],
        "test_in_a_callback": ["FAILED"],
        "test_in_a_fixture": ["PASSED", "ERROR"],
        "test_next": ["PASSED"],
    }
    shown = result.stdout.str()
    assert "started in test_inner.py::test_starts_it" in shown
    assert "its own failure" in shown
