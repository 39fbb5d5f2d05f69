"""One application with peers, plain and mounted in frameworks beside ordinary routes, for every host.

`/ws` speaks json and `/ws-msgpack` msgpack, `/` is an ordinary route, `/facts` tells as JSON what each named peer here
has seen. The frameworks have besides: `/login?user=…`, which sets a session, and `/private`, for `ann` only.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

from muxws_green import UpgradeRefused, WSGIApp, accept, upgradable
from muxws_green.codecs import MsgpackCodec
from muxws_green.runtime.peer import Peer
from tests.doors.deeds import OPTIONS, Worker

#: Every worker of this process, so that their names can be looked for.
workers: list[Worker] = []

PATHS = {"/ws": "json", "/ws-msgpack": "msgpack"}

CODECS: dict[str, Any] = {"json": "json", "msgpack": MsgpackCodec()}


def take(codec_name: str) -> Callable[[Peer], None]:
    def employ(peer: Peer) -> None:
        worker = Worker(codec_name)
        worker.take(peer)
        workers.append(worker)

    return employ


def facts() -> bytes:
    return json.dumps({worker.name: worker.facts() for worker in workers}).encode()


class Plain:
    """WSGI without a framework. gevent-websocket asks it which subprotocol to select."""

    def __init__(self) -> None:
        self._peers = {
            path: WSGIApp(None, codec=CODECS[name], on_connect=take(name), **OPTIONS) for path, name in PATHS.items()
        }

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        serve = self._peers.get(environ["PATH_INFO"])
        if serve is not None:
            return serve(environ, start_response)
        body = facts() if environ["PATH_INFO"] == "/facts" else b"an ordinary answer"
        start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
        return [body]

    def app_protocol(self, path: str) -> str:
        return self._peers[path].app_protocol(path)


def enter(environ: dict[str, Any]) -> Any:
    """What a view does with a request that asks for a peer: the whole connection, and the body for its host."""
    codec_name = PATHS.get(environ["PATH_INFO"], "json")
    peer = accept(environ, codec=CODECS[codec_name], **OPTIONS)
    take(codec_name)(peer)
    return peer.serve()


def flask_app() -> Any:
    import flask

    app = flask.Flask("doors")
    app.secret_key = "k"

    @app.route("/")
    def index() -> str:
        return "an ordinary answer"

    @app.route("/login")
    def login() -> str:
        flask.session["user"] = flask.request.args["user"]
        return "in"

    @app.route("/facts")
    def show() -> Any:
        return facts()

    @app.route("/ws", websocket=True)
    @app.route("/ws-msgpack", websocket=True)
    def socket() -> Any:
        return enter(flask.request.environ)

    @app.route("/private", websocket=True)
    def private() -> Any:
        user = flask.session.get("user")
        if user is None:
            flask.abort(401)
        if user != "ann":
            flask.abort(403)
        return enter(flask.request.environ)

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

    @app.route("/login")
    def login() -> str:
        bottle.response.set_cookie("user", bottle.request.query["user"], secret="k")
        return "in"

    @app.route("/facts")
    def show() -> Any:
        return facts()

    @app.route("/ws")
    @app.route("/ws-msgpack")
    def socket() -> Any:
        try:
            return enter(bottle.request.environ)
        except UpgradeRefused as error:
            return bottle.HTTPResponse(error.reason, error.status, dict(error.headers))

    @app.route("/private")
    def private() -> Any:
        user = bottle.request.get_cookie("user", secret="k")
        if user is None:
            raise bottle.HTTPError(401, "who are you?")
        if user != "ann":
            raise bottle.HTTPError(403, "not you")
        return socket()

    return upgradable(app)


def django_app() -> Any:
    import django
    from django.conf import settings
    from django.core.wsgi import get_wsgi_application
    from django.http import HttpResponse
    from django.urls import path

    def index(request: Any) -> Any:
        return HttpResponse("an ordinary answer", content_type="text/plain")

    def login(request: Any) -> Any:
        request.session["user"] = request.GET["user"]
        return HttpResponse("in")

    def show(request: Any) -> Any:
        return HttpResponse(facts())

    def socket(request: Any) -> Any:
        try:
            return HttpResponse(enter(request.environ))
        except UpgradeRefused as error:
            return HttpResponse(error.reason, status=error.status, headers=dict(error.headers))

    def private(request: Any) -> Any:
        user = request.session.get("user")
        if user is None:
            return HttpResponse("who are you?", status=401)
        if user != "ann":
            return HttpResponse("not you", status=403)
        return socket(request)

    patterns = [path("", index), path("login", login), path("facts", show), path("private", private)]
    patterns += [path(place[1:], socket) for place in PATHS]
    settings.configure(
        ALLOWED_HOSTS=["*"],
        ROOT_URLCONF=tuple(patterns),
        SECRET_KEY="k",
        INSTALLED_APPS=["django.contrib.sessions"],
        SESSION_ENGINE="django.contrib.sessions.backends.signed_cookies",
        MIDDLEWARE=[
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.middleware.common.CommonMiddleware",
        ],
        LOGGING_CONFIG=None,
    )
    # It has a warning for each answer of 4xx.
    logging.getLogger("django.request").addHandler(logging.NullHandler())
    django.setup()
    return upgradable(get_wsgi_application())


APPS: dict[str, Callable[[], Any]] = {
    "plain": Plain,
    "flask": flask_app,
    "bottle": bottle_app,
    "django": django_app,
}
