"""What a contract suite is: a list of promises, each a function that tries one of them on an implementation.

The first line of a promise's docstring says what was promised; it begins the message of the AssertionError. Whatever
else an implementation does in place of keeping a promise, an error that it must not raise or a wait without an end, is
such an AssertionError too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import gevent

#: Real seconds that one promise may take.
SECONDS = 20.0

Subject = TypeVar("Subject")


def keep(promises: Iterable[Callable[[Subject], None]], make: Callable[[], AbstractContextManager[Subject]]) -> None:
    """Try every promise on a subject of its own.

    Raises:
        AssertionError: The first promise that is not kept.
    """
    for promise in promises:
        bound = gevent.Timeout(SECONDS)
        try:
            with bound, make() as subject:
                promise(subject)
        except AssertionError as error:
            raise AssertionError(f"{said(promise)}: {error}") from error
        except gevent.Timeout as error:
            if error is not bound:
                raise
            raise AssertionError(f"{said(promise)}: nothing had happened after {SECONDS:g} seconds") from error
        except Exception as error:
            # An implementation may fail in any way; the promise says what it should have done.
            raise AssertionError(f"{said(promise)}: {type(error).__name__} was raised: {error}") from error


class Task:
    """A greenlet that keeps what comes of its work.

    Args:
        work: What it does, with `arguments`.
    """

    def __init__(self, work: Callable[..., Any], *arguments: Any) -> None:
        self._work = work
        self._arguments = arguments
        #: What the work returned and what it raised; None as long as it is not over.
        self.value: Any = None
        self.error: BaseException | None = None
        self._greenlet = gevent.spawn(self._run)

    @property
    def over(self) -> bool:
        """Whether the work has ended."""
        return bool(self._greenlet.dead)

    def join(self) -> None:
        """Wait for the end of the work."""
        self._greenlet.join()

    def throw(self, error: BaseException) -> None:
        """Interrupt the work, and wait for its end."""
        self._greenlet.kill(error, block=True)

    def _run(self) -> None:
        try:
            self.value = self._work(*self._arguments)
        except BaseException as error:
            # For whoever looks at the task; the hub would only print it.
            self.error = error


def said(promise: Callable[..., object]) -> str:
    """What was promised."""
    return (promise.__doc__ or promise.__name__).strip().partition("\n")[0].rstrip(".")


def expect(condition: object, complaint: str) -> None:
    """Complain unless the condition holds; as `assert`, but also under `python -O`."""
    if not condition:
        raise AssertionError(complaint)


def raised(
    expected: type[BaseException] | tuple[type[BaseException], ...], act: Callable[[], object], what: str
) -> BaseException:
    """The error of this kind that `act` raises.

    Raises:
        AssertionError: It raises none, or one of another kind.
    """
    try:
        act()
    except expected as error:
        return error
    except Exception as error:
        # Another error than the one that was promised is a broken promise, whatever it is.
        raise AssertionError(f"{what} raised {type(error).__name__} ({error}), not {_names(expected)}") from error
    raise AssertionError(f"{what} did not raise {_names(expected)}")


def _names(kinds: type[BaseException] | tuple[type[BaseException], ...]) -> str:
    return " or ".join(kind.__name__ for kind in (kinds if isinstance(kinds, tuple) else (kinds,)))
