"""A Flask application with a login: only who is logged in gets a connection, and logging out ends it.

    python servers/flask_login_app.py --port 8000 --user ann:secret --user bob:hidden

A browser logs in on http://127.0.0.1:8000/ and runs, on that page,

    new WebSocket("ws://127.0.0.1:8000/ws", "muxws.v1.json")

Its cookie comes with the request, so that the view knows the user before there is a connection, and can refuse it with
401. A page of another site would send the cookie too: that is what `allowed_origins` is for.
"""

from __future__ import annotations

import argparse
import secrets
import signal
from typing import Any

import flask
import gevent
from markupsafe import escape
from werkzeug.security import check_password_hash, generate_password_hash

from muxws_green import PeerRegistry, SameOrigin, Server, Stream, UpgradeRefused, accept, upgradable

PAGE = """<!doctype html><title>Who is here</title>
<form method=post action=/login><input name=user><input name=password type=password><button>log in</button></form>
"""

app = flask.Flask(__name__)
app.config.update(SESSION_COOKIE_HTTPONLY=True, SESSION_COOKIE_SAMESITE="Lax")

#: User -> hash of the password.
users: dict[str, str] = {}
#: The connections of everybody who is logged in.
connected = PeerRegistry()


@app.get("/")
def index() -> Any:
    """Who the caller is, or a form to log in with."""
    user = flask.session.get("user")
    return PAGE if user is None else f"You are {escape(user)}."


@app.post("/login")
def login() -> Any:
    """Check a password and set the cookie."""
    user = flask.request.form["user"]
    if not check_password_hash(users.get(user, ""), flask.request.form["password"]):
        flask.abort(401)
    flask.session["user"] = user
    return flask.redirect("/")


@app.post("/logout")
def logout() -> Any:
    """Forget the user, and end every connection that was opened with the cookie."""
    user = flask.session.pop("user", None)
    if user is not None:
        peers = connected.peers_for(user=user)
        gevent.joinall([gevent.spawn(peer.close, reason="logged out", drain=1.0) for peer in peers])
    return flask.redirect("/")


@app.route("/ws", websocket=True)
def connect() -> Any:
    """Serve one connection for as long as it lives. What is returned afterwards goes nowhere."""
    user = flask.session.get("user")
    if user is None:
        flask.abort(401)
    peer = accept(flask.request.environ, allowed_origins=SameOrigin())
    peer.tags["user"] = user
    peer.on_stream(lambda payload, stream: handle(user, payload, stream))
    tell_everybody(user, "came")
    with connected.registered(peer):
        body = peer.serve()
    tell_everybody(user, "went")
    return body


@app.errorhandler(UpgradeRefused)
def refused(error: UpgradeRefused) -> Any:
    """Answer a refused upgrade: a page of another site with 403, something that is no WebSocket with 400 or 426."""
    return error.reason, error.status, error.headers


def handle(user: str, payload: Any, stream: Stream) -> None:
    """Answer one stream. Handlers run outside of the request: what they need is given to them."""
    if payload == {"who": "am I"}:
        stream.reply(user)
    elif payload == {"who": "is here"}:
        stream.reply(sorted({peer.tags["user"] for peer in connected.peers_for()}))
    else:
        raise ValueError("ask who am I, or who is here")


def tell_everybody(user: str, what: str) -> None:
    """Say who comes and goes."""
    connected.notify_all({"user": user, "what": what})


def main() -> None:
    """Serve until told to stop."""
    parser = argparse.ArgumentParser(description="A Flask application with a login and peers.")
    parser.add_argument("--port", type=int, default=8000, help="0 lets the system choose (default: %(default)s)")
    parser.add_argument("--user", action="append", default=[], metavar="NAME:PASSWORD", help="may be given repeatedly")
    parser.add_argument("--secret-key", help="signs the cookies; without one they last until the server stops")
    options = parser.parse_args()
    for pair in options.user:
        name, _, password = pair.partition(":")
        users[name] = generate_password_hash(password)
    app.secret_key = options.secret_key or secrets.token_hex()

    # Under another server: `app.wsgi_app = upgradable(app.wsgi_app)`, which `Server` does by itself.
    server = Server(("127.0.0.1", options.port), upgradable(app), log=None)
    for number in (signal.SIGTERM, signal.SIGINT):
        gevent.signal_handler(number, server.drain, 10.0)
    server.start()
    print(f"listening on http://127.0.0.1:{server.server_port}/", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
