"""What the contract suites have in common: how a promise fails, and that none goes on for ever."""

from __future__ import annotations

from contextlib import contextmanager

import gevent
import pytest
from gevent.event import Event

from muxws_green.testing.contracts import promises
from muxws_green.testing.contracts.promises import Task, expect, keep, raised, said


class Subject:
    """Notes how often it was made and tidied up."""

    def __init__(self) -> None:
        self.made = 0
        self.tidied = 0

    @contextmanager
    def make(self):
        self.made += 1
        try:
            yield self
        finally:
            self.tidied += 1


def kept(subject):
    """It is kept."""


def test_each_promise_gets_a_subject_of_its_own():
    subject = Subject()
    keep([kept, kept], subject.make)
    assert (subject.made, subject.tidied) == (2, 2)


def broken(subject):
    """It answers.

    And more of it.
    """
    expect(subject is None, "it is silent")


def test_the_first_broken_promise_is_told_and_the_subject_tidied_up():
    subject = Subject()
    with pytest.raises(AssertionError, match=r"^It answers: it is silent$"):
        keep([kept, broken, kept], subject.make)
    assert (subject.made, subject.tidied) == (2, 2)


def fails(subject):
    """It answers."""
    raise KeyError("k")


def test_any_error_is_a_broken_promise():
    with pytest.raises(AssertionError, match=r"^It answers: KeyError was raised: 'k'$") as caught:
        keep([fails], Subject().make)
    assert isinstance(caught.value.__cause__, KeyError)


def hangs(subject):
    """It answers."""
    Event().wait()


def test_a_wait_without_an_end_is_a_broken_promise(monkeypatch):
    monkeypatch.setattr(promises, "SECONDS", 0.01)
    subject = Subject()
    with pytest.raises(AssertionError, match=r"^It answers: nothing had happened after 0\.01 seconds$"):
        keep([hangs], subject.make)
    assert subject.tidied == 1


def test_the_callers_own_timeout_is_his():
    with pytest.raises(gevent.Timeout) as caught, gevent.Timeout(0.01) as timeout:
        keep([hangs], Subject().make)
    assert caught.value is timeout


def test_what_is_said_is_the_first_line():
    assert said(broken) == "It answers"
    assert said(lambda: None) == "<lambda>"


def test_raised_gives_the_error():
    error = raised((KeyError, ValueError), lambda: int("x"), "int")
    assert type(error) is ValueError


def test_raised_complains_about_another_error_or_none():
    with pytest.raises(AssertionError, match=r"^int raised ValueError \(.*\), not KeyError or TypeError$"):
        raised((KeyError, TypeError), lambda: int("x"), "int")
    with pytest.raises(AssertionError, match=r"^int did not raise KeyError$"):
        raised(KeyError, lambda: int("1"), "int")


def test_a_task_keeps_what_comes_of_it():
    good, bad = Task(int, "7"), Task(int, "x")
    assert not good.over
    good.join()
    bad.join()
    assert (good.value, good.error, good.over) == (7, None, True)
    assert bad.value is None
    assert isinstance(bad.error, ValueError)


def test_a_task_is_interrupted_by_what_is_thrown():
    task = Task(Event().wait)
    gevent.sleep(0)
    error = gevent.Timeout()
    task.throw(error)
    assert task.error is error
    assert task.over
