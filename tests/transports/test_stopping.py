"""Servers that are told to stop, as processes: their peers are sent away, and then they are gone (C19)."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.hosts.client import ClientEnd, exchange, head
from tests.hosts.process import WORKERS, HostProcess, serving
from tests.transports.raw import CLOSE, TEXT, close_frame

pytestmark = [pytest.mark.host, pytest.mark.slow]

HOSTS = ["pywsgi", "server", "gevent-websocket hook", *(host for host in WORKERS if host != "gunicorn sync")]
HOSTS.remove("gunicorn gevent-websocket after")


def open_peer(server: HostProcess) -> ClientEnd:
    answer = exchange(server.connect(), head())
    assert answer.status == 101
    return answer.end


def ask(end: ClientEnd, seconds: float, number: int = 1) -> None:
    end.send(TEXT, json.dumps({"type": "open", "stream": number, "payload": seconds, "end": True}).encode())


def received(end: ClientEnd) -> dict[str, object]:
    message = end.frame()
    assert message.opcode == TEXT
    return json.loads(message.payload)


@pytest.mark.case("C19")
@pytest.mark.parametrize("host", HOSTS)
def test_sigterm_sends_peers_away_with_a_code(host, tmp_path: Path):
    with serving(host, tmp_path, "peers", tls=host in ("server", "gunicorn gevent")) as server:
        ends = [open_peer(server) for _ in range(21)]
        busy = ends[0]
        # Answered, so it is known to be served.
        for end in ends:
            ask(end, 0)
            assert received(end)["payload"] == "done"
        ask(busy, 0.5, 3)
        ask(busy, 0, 5)
        assert received(busy)["stream"] == 5
        server.process.send_signal(signal.SIGTERM)
        for end in ends:
            assert received(end)["type"] == "goaway"
        for end in ends:
            if end is busy:
                answer = received(end)
                assert (answer["stream"], answer["payload"]) == (3, "done")
            last = end.frame()
            assert (last.opcode, last.close_code) == (CLOSE, 1001)
            end.sock.sendall(close_frame(1001, masked=True))
            assert end.rest() == b""
            end.sock.close()
        # gunicorn looks once a second whether it is to stop, and again whether it can.
        assert server.wait() < (3.0 if host in WORKERS else 1.0)
        assert server.process.returncode == 0
        assert server.errors() == ""


@pytest.mark.parametrize("host", ["pywsgi", "gunicorn gevent"])
def test_whoever_comes_back_meanwhile_is_told_to_go_elsewhere(host, tmp_path: Path):
    with serving(host, tmp_path, "peers") as server:
        end, late = open_peer(server), server.connect()
        # Kept, so that the host need not accept it any more.
        assert exchange(late, b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: x\r\n\r\n").status in (400, 426)
        late.close()
        late = server.connect()
        late.sendall(head()[:-4])
        ask(end, 0.3)
        ask(end, 0, 3)
        assert received(end)["stream"] == 3
        server.process.send_signal(signal.SIGTERM)
        assert received(end)["type"] == "goaway"
        assert exchange(late, b"\r\n\r\n").status == 503
        late.close()
        assert received(end)["payload"] == "done"
        assert end.frame().close_code == 1001
        end.sock.close()
        server.wait()
        assert server.errors() == ""


@pytest.mark.parametrize(
    "host,tls,advice",
    [
        ("wsgiref", False, "gevent.pywsgi"),
        ("gunicorn sync", False, "-k gevent"),
        ("pywsgi with stdlib TLS", True, "gevent.ssl.SSLContext"),
    ],
)
def test_a_host_that_cannot_be_used_says_what_can(host, tls, advice, tmp_path: Path):
    with serving(host, tmp_path, "refusing", tls=tls) as server:
        answer = exchange(server.connect(), head())
        assert answer.status == 200
        assert advice in answer.body().decode()
        assert server.errors() == ""
