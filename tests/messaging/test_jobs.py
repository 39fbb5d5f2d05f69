"""The scheduler's book: attempts have numbers of their own, results are taken once, and a restart forgets nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from muxws_green.messaging.jobs import Attempt, JobBook, Verdict

TAKEN, REPEATED, REFUSED = Verdict


def make(*texts: str, path: Path | None = None) -> JobBook:
    book = JobBook(path)
    book.add(texts)
    return book


def test_jobs_are_given_out_in_their_order_once_each() -> None:
    book = make("x", "y")
    assert [book.start("a"), book.start("b"), book.start("c")] == [Attempt(1, 1, "x"), Attempt(2, 1, "y"), None]


def test_a_job_is_its_text() -> None:
    book = make("x", "x", "y")
    book.add(["y", "z"])
    assert [job.text for job in book.jobs] == ["x", "y", "z"]


def test_a_result_is_taken_once() -> None:
    book = make("x")
    book.start("a")
    assert not book.is_done
    assert book.take(1, 1, "a", "first") is TAKEN
    assert book.is_done
    # Its agent asks again where it did not hear the answer.
    assert book.take(1, 1, "a", "second") is REPEATED
    assert book.jobs[0].result == "first"
    assert book.refused == 0
    assert book.start("a") is None


def test_a_lost_attempt_is_given_out_again_under_another_number_and_its_result_refused() -> None:
    book = make("x", "y")
    first = book.start("a")
    other = book.start("b")
    assert first is not None
    assert book.is_under_way(first)
    assert book.lose("a") == [first]
    assert book.lose("a") == []
    assert not book.is_under_way(first)
    # Before it is given out again, and afterwards, and when the job is done.
    assert book.take(1, 1, "a", "late") is REFUSED
    assert book.start("c") == Attempt(1, 2, "x")
    assert book.take(1, 1, "a", "late") is REFUSED
    assert book.take(1, 2, "c", "in time") is TAKEN
    assert book.take(1, 1, "a", "late") is REFUSED
    assert book.refused == 3
    assert book.jobs[0].result == "in time"
    assert other is not None
    assert book.is_under_way(other)


@pytest.mark.parametrize(
    "job,number,agent", [(0, 1, "a"), (2, 1, "a"), (-1, 1, "a"), (1, 0, "a"), (1, 2, "a"), (1, 1, "b")]
)
def test_results_of_attempts_that_were_never_made_are_refused(job: int, number: int, agent: str) -> None:
    book = make("x")
    book.start("a")
    assert book.take(job, number, agent, "?") is REFUSED
    assert not book.is_done
    assert book.take(1, 1, "a", "!") is TAKEN


def test_a_book_outlives_its_process(tmp_path: Path) -> None:
    path = tmp_path / "jobs.json"
    book = make("x", "y", "z", path=path)
    book.start("a")
    book.take(1, 1, "a", {"n": 1})
    lost = book.start("a")
    book.take(3, 1, "a", "?")
    assert lost is not None

    again = make("x", "y", "z", path=path)
    assert again.jobs[0].result == {"n": 1}
    assert again.refused == 1
    assert not again.is_under_way(lost)
    assert again.take(1, 1, "a", {"n": 1}) is REPEATED
    assert again.start("a") == Attempt(2, 2, "y")
    assert again.take(lost.job, lost.number, "a", "late") is REFUSED
    assert [entry.name for entry in tmp_path.iterdir()] == ["jobs.json"]


def test_what_is_given_out_is_written_down_before(tmp_path: Path) -> None:
    path = tmp_path / "jobs.json"
    book = make("x", path=path)
    book.start("a")
    assert json.loads(path.read_text())["jobs"][0]["attempts"] == 1


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"jobs": [{"name": 1}], "refused": 0}', '{"jobs": 7, "refused": 0}']
)
def test_a_file_that_is_no_book(tmp_path: Path, text: str) -> None:
    path = tmp_path / "jobs.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"jobs\.json does not hold"):
        JobBook(path)
    assert path.read_text() == text


class Books(RuleBasedStateMachine):
    """Whatever happens, each job's result is that of the one attempt that was neither lost nor made up."""

    agents = st.sampled_from("abc")

    def __init__(self) -> None:
        super().__init__()
        self.book = make("x", "y")
        self.held: dict[tuple[int, int], str] = {}
        self.made: set[tuple[int, int]] = set()
        self.results: dict[int, Any] = {}
        self.taken: set[tuple[int, int]] = set()
        self.refused = 0

    @rule(agent=agents)
    def start(self, agent: str) -> None:
        attempt = self.book.start(agent)
        if attempt is not None:
            key = (attempt.job, attempt.number)
            assert key not in self.made
            assert attempt.job not in self.results
            assert attempt.job not in {job for job, _ in self.held}
            self.made.add(key)
            self.held[key] = agent

    @rule(agent=agents)
    def lose(self, agent: str) -> None:
        lost = {(attempt.job, attempt.number) for attempt in self.book.lose(agent)}
        assert lost == {key for key, holder in self.held.items() if holder == agent}
        for key in lost:
            del self.held[key]

    @rule(job=st.integers(0, 3), number=st.integers(0, 4), agent=agents, result=st.integers())
    def take(self, job: int, number: int, agent: str, result: int) -> None:
        key = (job, number)
        verdict = self.book.take(job, number, agent, result)
        if self.held.get(key) == agent:
            assert verdict is TAKEN
            self.results[job] = result
            self.taken.add(key)
            del self.held[key]
        elif key in self.taken:
            assert verdict is REPEATED
        else:
            assert verdict is REFUSED
            self.refused += 1

    @precondition(lambda self: self.held)
    @rule()
    def take_of_whoever_holds_it(self) -> None:
        (job, number), agent = next(iter(self.held.items()))
        self.take(job, number, agent, number)

    @invariant()
    def agrees(self) -> None:
        assert {n: job.result for n, job in enumerate(self.book.jobs, 1) if job.done_by is not None} == self.results
        assert self.book.refused == self.refused
        assert self.book.is_done == (len(self.results) == 2)


TestBooks = Books.TestCase
