"""A scheduler's book: which jobs there are, which attempt of each is under way, and what came of them.

A job is given out in attempts, each with its own number, and counts as done when the result of the attempt that is
under way is taken. An attempt whose agent is lost is lost with it: the job is given out again, so that it may be
*started* twice, and a result of the lost attempt is refused, so that it is *taken* once. What has been written down
here outlives the process, not a power cut. Used by `scheduler`; it does no I/O but on its own file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Attempt:
    """One giving out of a job.

    Args:
        job: The job's number, from 1.
        number: Which attempt of the job it is, from 1. No two attempts of a job have the same.
        text: The job.
    """

    job: int
    number: int
    text: str


@dataclass
class Job:
    """One job, as it is written down.

    Args:
        text: What is to be done; also what tells jobs apart.
        attempts: How many times it has been given out.
        agent: Who holds the attempt that is under way; None where none is.
        result: What came of it; None until it is done.
        done_by: The number of the attempt that did it; None until then.
    """

    text: str
    attempts: int = 0
    agent: str | None = None
    result: Any = None
    done_by: int | None = None


class Verdict(Enum):
    """What `JobBook.take` has made of a result."""

    #: The job is done by it.
    TAKEN = "taken"
    #: It had been taken before; its agent did not hear of that.
    REPEATED = "taken before"
    #: Of an attempt that was lost, or never made.
    REFUSED = "refused"


class JobBook:
    """All jobs of a scheduler.

    Args:
        path: Where it is kept, and read from if it is there; None: in memory alone.

    Attributes:
        refused: How many results were of attempts that had been lost.

    Raises:
        ValueError: The file is no such book.
        OSError: The file cannot be read or written.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self.jobs: list[Job] = []
        self.refused = 0
        if path is not None and path.exists():
            self._read(path)

    def _read(self, path: Path) -> None:
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            self.jobs = [Job(**job) for job in kept["jobs"]]
            self.refused = int(kept["refused"])
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{path} does not hold the jobs of a scheduler: {error}") from error
        for job in self.jobs:
            # Whoever held it was connected to a process that is no more.
            job.agent = None

    def add(self, texts: Iterable[str]) -> None:
        """Write down the jobs among `texts` that are not known yet."""
        known = {job.text for job in self.jobs}
        for text in texts:
            if text not in known:
                known.add(text)
                self.jobs.append(Job(text))
        self._save()

    @property
    def is_done(self) -> bool:
        """Whether every job is done."""
        return all(job.done_by is not None for job in self.jobs)

    def start(self, agent: str) -> Attempt | None:
        """Give the first job that waits to `agent`, and write that down; None where none waits."""
        for number, job in enumerate(self.jobs, 1):
            if job.done_by is None and job.agent is None:
                job.agent = agent
                job.attempts += 1
                self._save()
                return Attempt(number, job.attempts, job.text)
        return None

    def is_under_way(self, attempt: Attempt) -> bool:
        """Whether that attempt has neither been lost nor come to a result."""
        return self._holds(attempt.job, attempt.number)

    def lose(self, agent: str) -> list[Attempt]:
        """Give up every attempt that `agent` holds; their jobs wait again."""
        lost = []
        for number, job in enumerate(self.jobs, 1):
            if job.agent == agent:
                job.agent = None
                lost.append(Attempt(number, job.attempts, job.text))
        if lost:
            self._save()
        return lost

    def take(self, job: int, number: int, agent: str, result: Any) -> Verdict:
        """Judge the result of attempt `number` of a job, and write down what is taken.

        Args:
            job: The job's number.
            number: The attempt's.
            agent: Who says so.
            result: What came of it; anything that JSON can carry.
        """
        if self._holds(job, number) and self.jobs[job - 1].agent == agent:
            done = self.jobs[job - 1]
            done.result, done.done_by, done.agent = result, number, None
            self._save()
            return Verdict.TAKEN
        if 1 <= job <= len(self.jobs) and number == self.jobs[job - 1].done_by:
            return Verdict.REPEATED
        self.refused += 1
        self._save()
        return Verdict.REFUSED

    def _holds(self, job: int, number: int) -> bool:
        if not 1 <= job <= len(self.jobs):
            return False
        known = self.jobs[job - 1]
        return known.agent is not None and known.attempts == number

    def _save(self) -> None:
        if self._path is None:
            return
        kept = {"jobs": [asdict(job) for job in self.jobs], "refused": self.refused}
        # Whoever reads it, or kills this process, finds the old book or the new one, never half of one.
        new = self._path.with_name(self._path.name + ".new")
        new.write_text(json.dumps(kept, indent=1), encoding="utf-8")
        os.replace(new, self._path)
