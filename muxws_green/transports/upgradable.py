"""The middleware for applications whose views accept connections and have no `start_response`: Flask, Bottle, Django.

A view ends, and then its framework answers: a second status line in the middle of a WebSocket. The middleware stands
between the framework and the server. It keeps the server's `start_response` for `accept(environ)`, and once that has
been used it lets nothing of the framework's answer through. The invariant: of one request, either the framework's
answer or the 101 reaches the server, never both.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from muxws_green.errors import TransportUnsupportedError
from muxws_green.transports.hosts import read_no_further

if TYPE_CHECKING:
    from _typeshed import OptExcInfo
    from _typeshed.wsgi import StartResponse, WSGIApplication

#: Where a request's `Door` is in its environ.
DOOR_KEY = "muxws_green.door"


class Door:
    """One request's way past its framework. In the environ from the middleware on until the request is over.

    Args:
        start_response: The server's.
        asks_for_upgrade: Whether frames may follow the request. Where the framework answers it all the same, the
            connection is not kept, since they would be taken for the next request.
    """

    def __init__(self, start_response: StartResponse, *, asks_for_upgrade: bool) -> None:
        self.server_start_response = start_response
        self._asks_for_upgrade = asks_for_upgrade
        self._begun = False
        #: Gives the body for the server once the connection is over; None while nothing has been upgraded.
        self.finish: Callable[[], Any] | None = None

    def start_response(
        self, status: str, headers: list[tuple[str, str]], exc_info: OptExcInfo | None = None, /
    ) -> Callable[[bytes], object]:
        """What the framework is given as `start_response`."""
        if self.finish is not None:
            return _swallow
        self._begun = True
        if self._asks_for_upgrade:
            read_no_further(self.server_start_response)
        if exc_info is None:
            return self.server_start_response(status, headers)
        return self.server_start_response(status, headers, exc_info)

    def check_unanswered(self) -> None:
        """Raise TransportUnsupportedError where the framework has begun to answer, or the request is upgraded."""
        if self._begun or self.finish is not None:
            raise TransportUnsupportedError("an answer to this request has begun already")


def upgradable(app: WSGIApplication) -> WSGIApplication:
    """Wrap a WSGI application so that its views may call `accept(environ)`.

    Put it outermost: `app.wsgi_app = upgradable(app.wsgi_app)` in Flask, where the route needs `websocket=True`, and
    `application = upgradable(application)` around Bottle's and Django's. What a view returns after its connection is
    over is thrown away, with what the framework makes of it; requests that are not upgraded pass unchanged.
    """

    def application(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        if DOOR_KEY in environ:
            # Wrapped twice; the outer door is enough.
            return app(environ, start_response)
        door = environ[DOOR_KEY] = Door(start_response, asks_for_upgrade="HTTP_UPGRADE" in environ)
        try:
            body = app(environ, door.start_response)
        except BaseException:
            del environ[DOOR_KEY]
            raise
        # An application that is a generator runs only as the server iterates.
        runs_later = inspect.isgenerator(body)
        if runs_later and door.finish is None:
            return _passed_on(body, environ, door)
        del environ[DOOR_KEY]
        if door.finish is None:
            return body
        _close(body)
        return _finished(door)

    return application


def _passed_on(body: Iterable[bytes], environ: dict[str, Any], door: Door) -> Iterator[bytes]:
    try:
        for data in body:
            if door.finish is not None:
                break
            yield data
        if door.finish is not None:
            yield from _finished(door)
    finally:
        environ.pop(DOOR_KEY, None)
        _close(body)


def _finished(door: Door) -> Iterable[bytes]:
    assert door.finish is not None
    body: Iterable[bytes] = door.finish()
    return body


def _close(body: Iterable[bytes]) -> None:
    close = getattr(body, "close", None)
    if close is not None:
        close()


def _swallow(data: bytes) -> None:
    """Stands in for the server's `write`."""
