"""The pytest plugin, in a pytest inside the test, and the sample application's tests as its users run theirs."""

from __future__ import annotations

import importlib
import subprocess
import sys
import tomllib
from collections.abc import Callable

import pytest

from tests.shared import ROOT

pytestmark = pytest.mark.slow

#: As its entry point loads it, whether or not the distribution is installed.
PLUGIN = ("-p", "no:muxws_green", "-p", "muxws_green.testing.plugin")


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Callable[..., pytest.RunResult]:
    """Run pytest in a child process, in an empty directory, with the plugin and no other."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)

    def run(source: str, *arguments: str) -> pytest.RunResult:
        pytester.makepyfile(test_inner=source)
        others = ["no:randomly", "no:hypothesispytest", "no:cacheprovider"]
        plugins = [part for name in others for part in ("-p", name)]
        return pytester.runpytest_subprocess(*PLUGIN, *plugins, "-W", "error", *arguments, timeout=60)

    return run


def test_the_entry_point_names_the_plugin() -> None:
    project = tomllib.loads(ROOT.joinpath("pyproject.toml").read_text())["project"]
    plugin = importlib.import_module(project["entry-points"]["pytest11"]["muxws_green"])
    assert plugin.__name__ == PLUGIN[-1]


def test_nothing_but_the_plugin_needs_pytest() -> None:
    program = (
        "import sys, muxws_green, muxws_green.testing, muxws_green.testing.contracts; print('pytest' in sys.modules)"
    )
    child = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert child.stdout == "False\n"


def test_the_fixtures(run) -> None:
    run(
        """
        from muxws_green import WSGIApp, connect
        from muxws_green.testing import FakeClock

        def echo(payload, stream):
            stream.reply(payload)

        def test_pairs(peer_pair):
            for options in ({}, {"codec": "json", "capacity_bytes": 1000}):
                dialer, acceptor = peer_pair(**options)
                acceptor.on_stream(echo)
                assert dialer.request("x") == "x"

        def test_servers(muxws_server):
            urls = set()
            for app in (echo, WSGIApp(echo)):
                server = muxws_server(app)
                urls.add(server.url)
                with connect(server.url) as peer:
                    assert peer.request("x") == "x"
            assert len(urls) == 2

        def test_relays(relay, muxws_server):
            line = relay(muxws_server(echo).url, capacity_bytes=1000)
            with connect(line.url) as peer:
                assert peer.request("x") == "x"
            assert line.to_server.delivered_bytes > 100

        def test_time(fake_clock):
            assert type(fake_clock) is FakeClock
            fake_clock.sleep(3600.0)
            assert fake_clock.now() == 3600.0
        """
    ).assert_outcomes(passed=4)


def test_what_the_fixtures_make_goes_by_the_fake_clock_of_the_test(run) -> None:
    run(
        """
        import pytest
        from muxws_green import WSGIApp, connect
        from muxws_green.testing import FakeClock
        from muxws_green.runtime.clock import default_clock

        def slow(payload, stream):
            stream._link.clock.sleep(60.0)
            stream.reply(payload)

        @pytest.mark.parametrize("order", [0])
        def test_the_clock_comes_last(muxws_server, relay, peer_pair, order, fake_clock):
            line = relay(muxws_server(slow).url)
            line.to_server.delay(10.0)
            with connect(line.url, clock=fake_clock, heartbeat=None, open_timeout=None) as peer:
                before = fake_clock.now()
                assert peer.request("x") == "x"
                assert fake_clock.now() == before + 70.0
            dialer, acceptor = peer_pair()
            acceptor.on_stream(slow)
            before = fake_clock.now()
            assert dialer.request("x") == "x"
            assert fake_clock.now() == before + 60.0

        def test_unless_it_is_told_otherwise(fake_clock, peer_pair, muxws_server):
            dialer, acceptor = peer_pair(dialer={"clock": default_clock})
            assert dialer._options.clock is default_clock
            assert acceptor._options.clock is fake_clock
            muxws_server(WSGIApp(slow))
        """
    ).assert_outcomes(passed=2)


def test_everything_is_tidied_up_behind_a_test_that_fails(run) -> None:
    run(
        """
        import pytest
        from muxws_green import connect

        made = []

        def test_fails(fake_clock, peer_pair, muxws_server, relay, no_leaks):
            server = muxws_server(lambda payload, stream: stream.reply(payload))
            line = relay(server.url)
            peer = connect(line.url, clock=fake_clock)
            assert peer.request(1) == 1
            made.extend([server, line, peer, *peer_pair()])
            peer.close()
            assert not "reached"

        def test_after(no_leaks):
            server, line, peer, dialer, acceptor = made
            assert server.closed
            assert line.live == []
            assert dialer.is_closed and acceptor.is_closed and peer.is_closed
        """
    ).assert_outcomes(failed=1, passed=1)


def test_what_is_left_behind_fails_the_test_in_its_teardown(run) -> None:
    result = run(
        """
        import os
        import gevent
        import pytest
        from gevent.event import Event
        from muxws_green.testing import RawServer
        from muxws_green.testing.leaks import LeakCheck

        LeakCheck.wait.__defaults__ = (0.2,)
        kept = []

        def test_unasked():
            kept.append(os.dup(1))

        def test_descriptor(no_leaks):
            kept.append(os.dup(1))

        def test_greenlets_and_sockets(no_leaks):
            kept.append(RawServer())

        def test_greenlets_of_the_application(no_leaks):
            gevent.spawn(Event().wait)

        def test_what_ends_a_moment_later(no_leaks):
            server = RawServer()
            gevent.spawn_later(0.01, server.close)

        @pytest.fixture
        def leaking():
            kept.append(os.dup(1))

        @pytest.fixture
        def tidy():
            with RawServer() as server:
                yield server

        @pytest.fixture(scope="module")
        def wide():
            with RawServer() as server:
                yield server

        def test_fixture_before(leaking, no_leaks):
            pass

        def test_fixture_behind(no_leaks, leaking):
            pass

        def test_tidy_before(tidy, no_leaks):
            pass

        def test_tidy_behind(no_leaks, tidy):
            pass

        def test_wider_scope(wide, no_leaks):
            pass

        def test_wider_scope_of_another_test(no_leaks, wide):
            pass

        def test_that_fails_itself(no_leaks):
            kept.append(os.dup(1))
            assert False

        def test_afterwards(no_leaks):
            pass
        """,
        "-v",
    )
    result.assert_outcomes(passed=12, failed=1, errors=5)
    shown = result.stdout.str()
    for name in ("descriptor", "greenlets_and_sockets", "fixture_before", "fixture_behind", "that_fails_itself"):
        assert f"ERROR test_inner.py::test_{name}" in shown
    assert "left behind: descriptor" in shown
    assert "left behind: greenlet accepting at ('127.0.0.1', " in shown


def test_the_sample_application_passes_its_tests(run, pytester: pytest.Pytester) -> None:
    for path in ROOT.joinpath("examples", "testing_sample").glob("*.py"):
        pytester.path.joinpath(path.name).write_text(path.read_text())
    run("", "--ignore", "test_inner.py").assert_outcomes(passed=10)
