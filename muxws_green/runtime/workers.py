"""The greenlets in which handlers run: one for each handler that waits, and one in turn for all that do not.

To make a greenlet and to let it die takes longer than most of what is done for a call. So a greenlet whose job is over
takes the next one of its hub, provided that nobody can tell it from a new one: the job has never waited, each job has a
context of its own, and nobody refers to the greenlet: a `gevent.Timeout` that the job forgot, a kill that is under
way, a greenlet-local value or a link would otherwise hit the next job. Any other greenlet ends with its job.
"""

from __future__ import annotations

from collections import deque
from contextvars import Context
from sys import getrefcount
from typing import Any, Protocol
from weakref import getweakrefcount

from gevent import getcurrent
from gevent.hub import Hub
from greenlet import greenlet

from muxws_green.runtime.greenlets import CheapGreenlet
from muxws_green.runtime.home import disown_in_children
from muxws_green.runtime.turns import NOBODY, turns_of

#: Jobs that are begun before everybody else has a turn.
JOBS_A_TURN = 64

_ATTRIBUTE = "_muxws_green_workers"


class Job(Protocol):
    """Something to be done in a greenlet."""

    @property
    def name(self) -> str:
        """Names the greenlet meanwhile."""

    def run(self, in_greenlet: greenlet) -> None:
        """Do it."""


class Worker(CheapGreenlet):
    """One greenlet of `Workers`."""

    def __init__(self, workers: Workers) -> None:
        super().__init__(self._take_jobs)
        self._workers = workers
        self._job: Job | None = None

    @property
    def name(self) -> str:
        """That of its job."""
        return "between handlers" if self._job is None else self._job.name

    @property
    def rests(self) -> bool:
        """Whether it has no job, and belongs to nobody but its hub."""
        return self._job is None

    def _take_jobs(self) -> None:
        workers = self._workers
        turns = workers.turns
        while True:
            job = workers.next_job()
            if job is None:
                if workers.rest(self):
                    continue
                return
            waits = turns.waits
            self._job = job
            attributes, holders, watchers = len(self.__dict__), getrefcount(self), getweakrefcount(self)
            Context().run(job.run, self)
            self._job = job = None
            # Whoever refers to it now and did not before is somebody whom the job has told. A greenlet that has waited
            # is given no other job in any case: those who let it go on refer to it too, so that counting says nothing.
            if (
                turns.waits != waits
                or len(self.__dict__) != attributes
                or getrefcount(self) != holders
                or getweakrefcount(self) != watchers
                or self.has_links()
            ):
                return


class Workers:
    """Those of one hub.

    Args:
        hub: The hub.
    """

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self.turns = turns_of(hub)
        self._jobs: deque[Job] = deque()
        self._called = False
        self._budget = 0
        self._resting: Worker | None = None
        disown_in_children(self)

    def submit(self, job: Job) -> None:
        """Have a job done, soon. Never switches."""
        self._jobs.append(job)
        if not self._called:
            self._called = True
            if not self.turns.offer(self._begin):
                self._hub.loop.run_callback(self._work)

    def _begin(self, _: None) -> Any:
        """Begin with the one job there is in the caller's turn, in the worker that rests.

        The hub sees to more of them, and to a new worker: a greenlet may call as deep as the one that first switched to
        it has left over.
        """
        if getcurrent() is self._hub:
            self._work()
            return NOBODY
        resting = self._resting
        begins = bool(self._jobs) and resting is not None and not resting.dead
        self._called = len(self._jobs) > begins
        if self._called:
            self._hub.loop.run_callback(self._work)
        if not begins:
            return NOBODY
        self._budget = 1
        return self._give_turn()

    def _work(self) -> None:
        """In the hub: begin with the jobs there are. A greenlet that waits comes back here, and another goes on."""
        self._budget = JOBS_A_TURN
        try:
            while self._jobs and self._budget:
                self._give_turn()
                self.turns.waits += 1
        finally:
            self._called = bool(self._jobs)
            if self._called:
                self._hub.loop.run_callback(self._work)

    def _give_turn(self) -> Any:
        worker, self._resting = self._resting, None
        if worker is None or worker.dead:
            worker = Worker(self)
            # For those who watch greenlets being started; that it runs at once takes the start back.
            worker.start()
        return worker.switch()

    def next_job(self) -> Job | None:
        """The next job for a worker; None where it is to rest, or to end."""
        if not self._jobs or not self._budget:
            return None
        self._budget -= 1
        job = self._jobs.popleft()
        self.turns.held = bool(self._jobs)
        return job

    def rest(self, worker: Worker) -> bool:
        """Wait for the next jobs. False where it has been dismissed. Of those that have never waited there is one."""
        self._resting = worker
        self.turns.wait()
        return bool(self._jobs)

    def dismiss(self) -> None:
        """Let the one that rests end, so that the next job gets a greenlet of now."""
        resting, self._resting = self._resting, None
        if resting is not None:
            self._hub.loop.run_callback(resting.switch)

    def disown(self) -> None:
        """In a forked child: the jobs are the parent's."""
        self._jobs.clear()
        self.turns.held = False
        disown_in_children(self)


def workers_of(hub: Hub) -> Workers:
    """The workers of a hub, which keeps them."""
    workers: Workers | None = getattr(hub, _ATTRIBUTE, None)
    if workers is None:
        workers = Workers(hub)
        setattr(hub, _ATTRIBUTE, workers)
    return workers
