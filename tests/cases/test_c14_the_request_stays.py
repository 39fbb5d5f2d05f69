"""C14: the greenlet of the request stays until the socket is gone, whoever else uses the peer, and no longer."""

from __future__ import annotations

import time
from typing import Any

import gevent
import pytest
from gevent.pywsgi import WSGIServer

from muxws_green import ConnectionLost, accept
from tests.cases.green import ask_stream, heard, opening, until
from tests.hosts.client import exchange, head
from tests.transports.raw import PATIENCE, TEXT, close_frame, frame

pytestmark = pytest.mark.case("C14")


class Application:
    """Accepts by hand, and has another greenlet use the peer."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.peers: list[Any] = []
        self.called: list[Any] = []
        self.returned: list[Any] = []

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        self.requests.append(gevent.getcurrent())
        peer = accept(environ, start_response, heartbeat=None)
        peer.on_stream(lambda payload, stream: stream.reply(payload))
        self.peers.append(peer)
        # A call before anybody serves: it must not need the request's greenlet.
        gevent.spawn(self._call, peer)
        body = peer.serve()
        self.returned.append(body)
        return body

    def _call(self, peer: Any) -> None:
        try:
            self.called.append(peer.request("from the server", timeout=PATIENCE))
        except ConnectionLost as error:
            self.called.append(error)


@pytest.mark.parametrize("how", ["close", "fin", "rst", "half a frame"])
def test_it_lives_until_the_end_of_the_socket(how: str) -> None:
    application = Application()
    server = WSGIServer(("127.0.0.1", 0), application, log=None)
    server.start()
    try:
        with gevent.Timeout(PATIENCE):
            sock = gevent.socket.create_connection(("127.0.0.1", server.server_port))
            # A frame comes with the request, so the reader has work before `serve`.
            end = exchange(sock, head() + frame(TEXT, opening(1, "early"), masked=True)).end
        answers = [heard(end), heard(end)]
        assert {"type": "data", "stream": 1, "payload": "early", "end": True} in answers
        asked = next(answer for answer in answers if answer["type"] == "open")
        end.send(TEXT, b'{"type":"data","stream":%d,"payload":"answer","end":true}' % asked["stream"])
        until(lambda: application.called)
        assert application.called == ["answer"]
        (request,) = application.requests
        # It serves on, and is still this connection's.
        ask_stream(end, 3, "later")
        assert heard(end)["payload"] == "later"
        assert not request.dead
        assert application.returned == []
        if how == "close":
            end.sock.sendall(close_frame(1000, masked=True))
            end.rest()
        elif how == "half a frame":
            end.sock.sendall(frame(TEXT, b"x" * 100, masked=True)[:50])
        begun = time.monotonic()
        if how == "rst":
            end.reset()
        else:
            end.sock.close()
        request.join(PATIENCE)
        assert request.dead
        assert time.monotonic() - begun < 1.0
        assert len(application.returned) == 1
        assert application.peers[0].is_closed
    finally:
        server.stop(timeout=0)
