"""Rooms, under gunicorn: whoever is in a room hears what is said there.

    gunicorn -c servers/gunicorn_conf.py

A client joins with `connect("ws://127.0.0.1:8000/ws?room=kitchen", on_stream=hear)`, says something with
`peer.request("hello")`, which answers how many have been told, and hears others as `hear(text, stream)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from muxws_green import PeerRegistry, Stream, UpgradeRefused, accept

if TYPE_CHECKING:
    from collections.abc import Iterable

    from _typeshed.wsgi import StartResponse

#: Of this worker process. With several workers a room is spread over them, and what is said must reach the others by
#: something that they share, such as a message broker.
rooms = PeerRegistry()


def application(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
    """What gunicorn serves: `/ws?room=…`, and ordinary requests."""
    if environ["PATH_INFO"] == "/ws":
        return join(environ, start_response)
    body = f"{len(rooms)} are here\n".encode()
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]


def join(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
    """Serve one client for as long as it stays."""
    room = parse_qs(environ["QUERY_STRING"]).get("room", [""])[0]
    if not room:
        return answer(404, "which room?", start_response)
    try:
        peer = accept(environ, start_response)
    except UpgradeRefused as refusal:
        return answer(refusal.status, refusal.reason, start_response, refusal.headers)
    peer.tags["room"] = room

    @peer.on_stream
    def say(text: Any, stream: Stream) -> None:
        told = rooms.notify_all({"text": text}, room=room)
        # Whoever cannot keep up is skipped, and holds up nobody.
        stream.reply({"told": told.queued, "skipped": told.skipped})

    with rooms.registered(peer):
        body: Iterable[bytes] = peer.serve()
        return body


def answer(
    status: int, text: str, start_response: StartResponse, headers: Iterable[tuple[str, str]] = ()
) -> Iterable[bytes]:
    """A short answer, after which the connection is not kept: frames of a hasty client may follow the request."""
    body = f"{text}\n".encode()
    fixed = [("Content-Type", "text/plain"), ("Content-Length", str(len(body))), ("Connection", "close")]
    start_response(f"{status} Refused", [*fixed, *headers])
    return [body]
