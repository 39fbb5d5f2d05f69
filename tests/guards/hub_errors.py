"""An error that reaches the hub fails the test that caused it.

gevent prints the exception of a greenlet that nobody caught and goes on. Here it fails the test during which it
happened; the report names the test that started the greenlet where that was another one. A test in which greenlets die
on purpose asks for the fixture `expected_hub_errors`, and then at least one must.
"""

from __future__ import annotations

import traceback
from collections.abc import Generator
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import gevent
import gevent.hub
import pytest


@dataclass(frozen=True)
class HubError:
    """One exception that nobody caught.

    `context` is what it happened in, mostly a greenlet; `started_in` the test that started it.
    """

    context: object
    error: BaseException
    started_in: str | None

    def __str__(self) -> str:
        whence = f", started in {self.started_in}," if self.started_in else ""
        return f"{self.context!r}{whence} died:\n{''.join(traceback.format_exception(self.error))}"


class HubErrors:
    """The plugin; one for each session. Records from `pytest_configure` to `pytest_unconfigure`."""

    def __init__(self) -> None:
        self._test: str | None = None
        self._errors: list[HubError] = []
        self._original = gevent.hub.Hub.handle_error

    def pytest_configure(self) -> None:
        plugin = self

        def handle_error(hub: gevent.hub.Hub, context: object, kind: Any, value: Any, tb: TracebackType | None) -> None:
            if not issubclass(kind, hub.NOT_ERROR):
                error = value if isinstance(value, BaseException) else kind(value)
                plugin._errors.append(HubError(context, error, getattr(context, "_started_in", None)))
            plugin._original(hub, context, kind, value, tb)

        gevent.hub.Hub.handle_error = handle_error  # type: ignore[method-assign, assignment]
        gevent.Greenlet.add_spawn_callback(self._spawned)

    def pytest_unconfigure(self) -> None:
        gevent.hub.Hub.handle_error = self._original  # type: ignore[method-assign]
        gevent.Greenlet.remove_spawn_callback(self._spawned)

    def _spawned(self, greenlet: gevent.Greenlet[..., Any]) -> None:
        greenlet._started_in = self._test  # type: ignore[attr-defined]

    # trylast: inside the capturing of output, which shall have what gevent prints.
    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, object, object]:
        self._test = item.nodeid
        self._errors.clear()
        return (yield from self._guarded(item))

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        result = yield from self._guarded(item)
        if _expects(item) and not self._errors:
            pytest.fail("the test expected an error in the hub, and there was none", pytrace=False)
        return result

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, object, object]:
        return (yield from self._guarded(item))

    def _guarded(self, item: pytest.Item) -> Generator[None, object, object]:
        failure: BaseException | None = None
        try:
            return (yield)
        except BaseException as error:
            failure = error
            raise
        finally:
            # One turn of the hub, so that what is about to die does it in this test and not in the next one.
            gevent.sleep(0)
            if self._errors and not _expects(item):
                report = "\n".join(map(str, self._errors))
                self._errors.clear()
                if failure is None:
                    pytest.fail(report, pytrace=False)
                failure.add_note(report)

    @pytest.fixture
    def expected_hub_errors(self) -> list[HubError]:
        """The errors in the hub so far, for a test that causes them. There must be one."""
        return self._errors


def _expects(item: pytest.Item) -> bool:
    return "expected_hub_errors" in getattr(item, "fixturenames", ())


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(HubErrors(), "hub-errors")
