"""The scheduler and its agents, as real processes that are killed, frozen and unplugged."""

from __future__ import annotations

import json
import re
import shlex
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gevent
import pytest

from muxws_green.api import default_clock
from muxws_green.testing import Relay
from tests.messaging.programs import PATIENCE, Stage
from tests.shared import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.watchdog(150)]

#: Finds death after two seconds; a machine that is busy with other things does not look dead so soon.
QUICK = ("--heartbeat-interval", "0.5", "--max-missed-pongs", "3")


@pytest.fixture(autouse=True)
def _bounded() -> None:
    """In place of the shorter bound of the tests without processes: each wait here has one of its own."""


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with Stage(tmp_path) as stage:
        yield stage


def wait_until(condition: Callable[[], bool]) -> None:
    """For what a process does without saying so."""
    with gevent.Timeout(PATIENCE):
        while not condition():
            default_clock.sleep(0.01)


def book(stage: Stage) -> Any:
    return json.loads((stage.directory / "jobs.json").read_text())


def test_a_scheduler_that_is_killed_and_restarted(stage: Stage) -> None:
    first, url = stage.scheduler("x", "y")
    agent = stage.agent("a", url)
    first.wait_for("job 1 attempt 1: given to a")
    agent.wait_for("job 1 attempt 1: started")
    first.signal(signal.SIGKILL)
    first.wait()
    agent.wait_for("disconnected")

    second, _ = stage.scheduler("x", "y", url=url)
    agent.wait_for("reconnected")
    second.wait_for("job 1 attempt 2: given to a")
    # The agent is still at its first attempt, whose result nobody waits for any more.
    stage.open_gate("a", "x")
    second.wait_for("job 1 attempt 1: result of a refused")
    agent.wait_for("job 1 attempt 1: refused")
    second.wait_for("job 1 attempt 2: result of a taken")
    second.wait_for("job 2 attempt 1: given to a")
    stage.open_gate("a", "y")
    assert second.wait() == 0
    assert second.lines[-3:] == [
        "job 1 'x': a did x",
        "job 2 'y': a did y",
        "2 of 2 jobs done in 3 attempts, 1 results refused",
    ]
    agent.signal(signal.SIGTERM)
    assert agent.wait() == 0
    assert [job["done_by"] for job in book(stage)["jobs"]] == [2, 1]
    assert book(stage)["refused"] == 1


def test_a_result_waits_for_the_next_scheduler(stage: Stage) -> None:
    first, url = stage.scheduler("x")
    agent = stage.agent("a", url)
    agent.wait_for("job 1 attempt 1: started")
    first.signal(signal.SIGKILL)
    first.wait()
    agent.wait_for("disconnected")
    stage.open_gate("a", "x")
    second, _ = stage.scheduler("x", url=url)
    second.wait_for("job 1 attempt 1: result of a refused")
    second.wait_for("job 1 attempt 2: result of a taken")
    assert second.wait() == 0
    assert second.lines[-2:] == ["job 1 'x': a did x", "1 of 1 jobs done in 2 attempts, 1 results refused"]


def test_an_agent_that_freezes_is_found_dead_and_its_job_given_out_again(stage: Stage) -> None:
    scheduler, url = stage.scheduler("x", options=QUICK)
    frozen = stage.agent("a", url)
    frozen.wait_for("job 1 attempt 1: started")
    frozen.signal(signal.SIGSTOP)
    # Its kernel goes on to acknowledge what is sent to it.
    scheduler.wait_for("agent a is dead: no answer to 4 pings within 2s")
    scheduler.wait_for("job 1 attempt 1: lost with a")
    other = stage.agent("b", url)
    scheduler.wait_for("job 1 attempt 2: given to b")
    frozen.signal(signal.SIGCONT)
    frozen.wait_for("reconnected")
    stage.open_gate("a", "x")
    scheduler.wait_for("job 1 attempt 1: result of a refused")
    frozen.wait_for("job 1 attempt 1: refused")
    stage.open_gate("b", "x")
    assert scheduler.wait() == 0
    assert scheduler.lines[-2:] == ["job 1 'x': b did x", "1 of 1 jobs done in 2 attempts, 1 results refused"]
    other.wait_for("job 1 attempt 2: taken")


def test_an_agent_whose_cable_is_pulled(stage: Stage) -> None:
    scheduler, url = stage.scheduler("x", options=QUICK)
    with Relay(url) as relay:
        agent = stage.agent("a", relay.url, QUICK)
        agent.wait_for("job 1 attempt 1: started")
        relay.both.drop()
        relay.refuse()
        # Neither end is told; both find out.
        scheduler.wait_for("agent a is dead: no answer to 4 pings within 2s")
        scheduler.wait_for("job 1 attempt 1: lost with a")
        agent.wait_for("disconnected")
        relay.both.restore()
        relay.admit()
        agent.wait_for("reconnected")
        scheduler.wait_for("job 1 attempt 2: given to a")
        stage.open_gate("a", "x")
        scheduler.wait_for("job 1 attempt 1: result of a refused")
        assert scheduler.wait() == 0
    assert scheduler.lines[-2:] == ["job 1 'x': a did x", "1 of 1 jobs done in 2 attempts, 1 results refused"]


def test_an_agent_that_is_killed_is_lost_at_once(stage: Stage) -> None:
    """Its kernel says so; nobody waits for a heartbeat."""
    scheduler, url = stage.scheduler("x")
    agent = stage.agent("a", url)
    agent.wait_for("job 1 attempt 1: started")
    agent.signal(signal.SIGKILL)
    agent.wait()
    scheduler.wait_for("agent a is lost: ")
    stage.open_gate("b", "x")
    stage.agent("b", url)
    assert scheduler.wait() == 0
    assert scheduler.lines[-1] == "1 of 1 jobs done in 2 attempts, 0 results refused"
    stage.open_gate("a", "x")


def test_both_stop_when_they_are_told(stage: Stage) -> None:
    scheduler, url = stage.scheduler("x")
    agent = stage.agent("a", url)
    agent.wait_for("job 1 attempt 1: started")
    wait_until(lambda: stage.is_at_work("a", "x"))
    agent.signal(signal.SIGTERM)
    # The command that it was running does not outlive it, and keeps nobody waiting.
    assert agent.wait() == 0
    wait_until(lambda: not stage.is_at_work("a", "x"))
    scheduler.wait_for("agent a has left")
    scheduler.signal(signal.SIGINT)
    assert scheduler.wait() == 1
    assert scheduler.lines[-1] == "0 of 1 jobs done in 1 attempts, 0 results refused"


def test_commands_that_fail_are_results_too(stage: Stage) -> None:
    scheduler, url = stage.scheduler("x", "y")
    first = stage.run("muxws_green.messaging.agent", url, "--name", "a", "--", "sh", "-c", "echo oh; exit 3")
    scheduler.wait_for("job 2 attempt 1: result of a taken")
    assert scheduler.wait() == 0
    assert scheduler.lines[-3:-1] == ["job 1 'x': exit code 3 oh", "job 2 'y': exit code 3 oh"]
    again, url = stage.scheduler("z")
    second = stage.run("muxws_green.messaging.agent", url, "--name", "a", "--", "./no-such-program")
    assert again.wait() == 0
    assert again.lines[-2].startswith("job 3 'z': exit code -1 ./no-such-program: ")
    for agent in (first, second):
        agent.signal(signal.SIGINT)
        assert agent.wait() == 0


@pytest.mark.parametrize(
    "arguments,complaint",
    [
        ((), "there is no JOB"),
        (("--state", "broken.json"), "does not hold the jobs of a scheduler"),
        (("--state", "foreign.json"), "does not hold the jobs of a scheduler"),
    ],
)
def test_a_scheduler_without_jobs(stage: Stage, arguments: tuple[str, ...], complaint: str) -> None:
    (stage.directory / "broken.json").write_text("{")
    (stage.directory / "foreign.json").write_text('{"name": "x"}')
    program = stage.run("muxws_green.messaging.scheduler", *arguments)
    assert program.wait() == 2
    assert any(complaint in line for line in program.lines)


def test_the_commands_of_the_docs(stage: Stage) -> None:
    """As they stand in docs/messaging.md, but for the port."""
    text = (ROOT / "docs" / "messaging.md").read_text()
    commands = re.findall(r"^ {4}\$ python -m (muxws_green\.messaging\.(?:scheduler|agent) .*)$", text, re.MULTILINE)
    assert len(commands) == 2
    (of_scheduler, *scheduler_arguments), (of_agent, url, *agent_arguments) = map(shlex.split, commands)
    scheduler = stage.run(of_scheduler, "--port", "0", *scheduler_arguments)
    port = scheduler.wait_for("listening on").rstrip("/").rpartition(":")[2]
    agent = stage.run(of_agent, url.replace("8765", port), *agent_arguments)
    assert scheduler.wait() == 0
    agent.wait_for("disconnected")
    shown = re.findall(r"^ {4}((?:job|agent|scheduler|\d+ of) .*)$", text, re.MULTILINE)
    printed = [line.replace(f":{port}/", ":8765/") for line in (*scheduler.lines, *agent.lines)]
    assert printed == shown
