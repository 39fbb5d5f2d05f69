"""One and the same application, plain and mounted in frameworks, for servers that run as processes of their own.

`/ws` echoes messages over the bare transport, with a reader in the request's greenlet and a writer beside it; `/` is an
ordinary route. What the framework answers after an echo has ended must never reach the client.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import gevent
from gevent.event import Event

from muxws_green.api import WSGIApp
from muxws_green.errors import ConnectionClosed, TransportUnsupportedError, UpgradeRefused
from muxws_green.protocol.origin import SameOrigin, compile_policy
from muxws_green.transports.acceptor import Upgraded, refuse, upgrade
from muxws_green.transports.upgradable import upgradable

CODEC = "json"
SUBPROTOCOL = "muxws.v1.json"
MAX_MESSAGE_BYTES = 131_072

#: How many echoes there have been, and how many are going on.
counts = {"begun": 0, "live": 0}


def echo(upgraded: Upgraded) -> None:
    """Send everything back until the connection is over; `close` makes this end close with 1001."""
    transport = upgraded.transport
    wake = Event()
    queued: list[bytes] = []
    ending: list[tuple[int, str]] = []
    transport.attach(wake.set)

    def write() -> None:
        try:
            while True:
                wake.wait()
                wake.clear()
                batch, queued[:] = list(queued), []
                transport.send(batch, False)
                if ending:
                    transport.close(*ending[0])
        except ConnectionClosed:
            pass

    writer = gevent.spawn(write)
    counts["begun"] += 1
    counts["live"] += 1
    try:
        while True:
            for message in transport.receive():
                if message == "close":
                    ending.append((1001, "asked to"))
                else:
                    assert isinstance(message, str)
                    queued.append(message.encode())
            wake.set()
    except ConnectionClosed as closed:
        gevent.sleep(0)
        writer.kill()
        transport.abort(closed.code if closed.code in (1002, 1007, 1009) else None)
    finally:
        counts["live"] -= 1


#: The policy of `/strict`.
STRICT = compile_policy(SameOrigin(also=["https://friend.example"]))


def accept(environ: dict[str, Any], start_response: Any = None) -> Upgraded:
    origins = STRICT if environ["PATH_INFO"] == "/strict" else None
    return upgrade(environ, start_response, codec_name=CODEC, origins=origins, max_message_bytes=MAX_MESSAGE_BYTES)


def status() -> bytes:
    return json.dumps(counts).encode()


def plain(environ: dict[str, Any], start_response: Any) -> Any:
    """WSGI without anything around it."""
    if environ["PATH_INFO"] in ("/ws", "/strict"):
        try:
            upgraded = accept(environ, start_response)
        except UpgradeRefused as error:
            return refuse(error, environ, start_response)
        echo(upgraded)
        return upgraded.finish()
    if environ["PATH_INFO"] == "/counts":
        body = status()
    else:
        body = b"an ordinary answer"
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]


def wrapped(environ: dict[str, Any], start_response: Any) -> Any:
    """Behind a middleware that hides the server's `start_response`."""

    def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
        write = start_response(status, [*headers, ("X-Seen", "yes")])
        return lambda data: write(data)

    return plain(environ, start)


def taken_over(environ: dict[str, Any], start_response: Any) -> Any:
    """For gevent-websocket's handler, which upgrades before it calls the application."""
    ws = environ.get("wsgi.websocket")
    if ws is None:
        return plain(environ, start_response)
    try:
        upgraded = upgrade(
            ws,
            codec_name=CODEC,
            origins=STRICT if environ["PATH_INFO"] == "/strict" else None,
            max_message_bytes=MAX_MESSAGE_BYTES,
        )
    except UpgradeRefused as error:
        return refuse(error, environ, start_response)
    echo(upgraded)
    return upgraded.finish()


def generator(environ: dict[str, Any], start_response: Any) -> Any:
    """An application that runs as the server iterates."""
    if environ["PATH_INFO"] == "/ws":
        echo(accept(environ))
        yield b"never seen"
    else:
        start_response("200 OK", [("Content-Type", "text/plain")])
        yield status() if environ["PATH_INFO"] == "/counts" else b"an ordinary answer"


def flask_app() -> Any:
    import flask

    app = flask.Flask("hosted")
    app.secret_key = "k"

    @app.route("/")
    def index() -> str:
        return "an ordinary answer"

    @app.route("/login")
    def login() -> str:
        flask.session["user"] = "u"
        return "in"

    @app.route("/counts")
    def show() -> Any:
        return status()

    @app.route("/ws", websocket=True)
    @app.route("/strict", websocket=True)
    def socket() -> Any:
        upgraded = accept(flask.request.environ)
        echo(upgraded)
        return upgraded.finish()

    @app.route("/private", websocket=True)
    def private() -> Any:
        if flask.session.get("user") != "u":
            return "who are you?", 401
        upgraded = accept(flask.request.environ)
        echo(upgraded)
        return "thrown away", 500

    @app.route("/raising", websocket=True)
    def raising() -> Any:
        upgraded = accept(flask.request.environ)
        echo(upgraded)
        flask.abort(404)

    @app.errorhandler(UpgradeRefused)
    def refused(error: UpgradeRefused) -> Any:
        return error.reason, error.status, error.headers

    app.wsgi_app = upgradable(app.wsgi_app)  # type: ignore[method-assign, assignment]
    return app


def bottle_app() -> Any:
    import bottle

    app = bottle.Bottle()

    @app.route("/")
    def index() -> str:
        return "an ordinary answer"

    @app.route("/counts")
    def show() -> Any:
        return status()

    @app.route("/ws")
    @app.route("/strict", websocket=True)
    def socket() -> Any:
        try:
            upgraded = accept(bottle.request.environ)
        except UpgradeRefused as error:
            return bottle.HTTPResponse(error.reason, error.status, dict(error.headers))
        echo(upgraded)
        return upgraded.finish()

    return upgradable(app)


def django_app() -> Any:
    import django
    from django.conf import settings
    from django.core.wsgi import get_wsgi_application
    from django.http import HttpResponse
    from django.urls import path

    def index(request: Any) -> Any:
        return HttpResponse("an ordinary answer", content_type="text/plain")

    def show(request: Any) -> Any:
        return HttpResponse(status())

    def socket(request: Any) -> Any:
        try:
            upgraded = accept(request.environ)
        except UpgradeRefused as error:
            return HttpResponse(error.reason, status=error.status, headers=dict(error.headers))
        echo(upgraded)
        upgraded.finish()
        return HttpResponse("thrown away")

    patterns = [path("", index), path("counts", show), path("ws", socket), path("strict", socket)]
    settings.configure(
        ALLOWED_HOSTS=["*"],
        ROOT_URLCONF=tuple(patterns),
        SECRET_KEY="k",
        MIDDLEWARE=["django.middleware.common.CommonMiddleware"],
        LOGGING_CONFIG=None,
    )
    # It has a warning for each answer of 4xx.
    logging.getLogger("django.request").addHandler(logging.NullHandler())
    django.setup()
    return upgradable(get_wsgi_application())


def peers_app(**options: Any) -> Any:
    """Peers, whose streams take as many seconds as they ask for."""

    def handle(payload: Any, stream: Any) -> None:
        gevent.sleep(payload)
        stream.reply("done")

    # A framework's views that accept, or the application itself: both are the same to a drain.
    return WSGIApp(handle, codec=CODEC, **options)


def refusing(environ: dict[str, Any], start_response: Any) -> Any:
    """Tells its client why a host cannot be used."""
    try:
        accept(environ, start_response)
    except TransportUnsupportedError as error:
        body = str(error).encode()
    else:
        raise AssertionError("this host was not expected to give its socket away")
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]


def with_peers(name: str) -> Callable[[], Any]:
    """The application of `tests.doors`, which is imported only by servers that are to serve it."""

    def load() -> Any:
        from tests.doors.apps import APPS

        return APPS[name]()

    return load


APPS: dict[str, Callable[[], Any]] = {
    **{f"doors/{name}": with_peers(name) for name in ("plain", "flask", "bottle", "django")},
    "plain": lambda: plain,
    "wrapped": lambda: wrapped,
    "taken_over": lambda: taken_over,
    "generator": lambda: upgradable(generator),
    "peers": lambda: peers_app(heartbeat=None),
    "peers with heartbeat": peers_app,
    "refusing": lambda: refusing,
    "flask": flask_app,
    "bottle": bottle_app,
    "django": django_app,
}
