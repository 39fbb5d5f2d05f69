"""An echo server on gevent's own WSGI server.

    python servers/pywsgi_echo.py --port 8000
    python -m muxws_green request ws://127.0.0.1:8000/ '"hello"'

Behind a Unix socket, as a reverse proxy on the same machine would like it:

    python servers/pywsgi_echo.py --unix /run/echo.sock
    python -m muxws_green request ws+unix:///run/echo.sock:/ '"hello"'

and with TLS of its own, from a file with the key and the chain of certificates:

    python servers/pywsgi_echo.py --port 8443 --certificate server.pem

On SIGTERM or SIGINT the peers are sent away: their running streams may take ten seconds to finish.
"""

from __future__ import annotations

import argparse
import os
import signal
import ssl
from typing import Any

import gevent
from gevent import socket
from gevent.pywsgi import WSGIServer
from gevent.ssl import SSLContext

from muxws_green import Stream, WSGIApp, drain_all


def echo(payload: Any, stream: Stream) -> None:
    """Say everything back, item by item, until the other side has ended."""
    stream.send(payload)
    for item in stream:
        # Waits while the other side is slow, and so does whoever sends to us.
        stream.send(item)


def unix_listener(path: str) -> socket.socket:
    """A listening socket at `path`, in place of what an earlier process has left there."""
    if os.path.exists(path):
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(128)
    return listener


def main() -> None:
    """Serve until told to stop."""
    parser = argparse.ArgumentParser(description="An echo server on gevent.pywsgi.")
    parser.add_argument("--port", type=int, default=8000, help="0 lets the system choose (default: %(default)s)")
    parser.add_argument("--unix", metavar="PATH", help="listen on a Unix socket instead of a port")
    parser.add_argument(
        "--certificate", metavar="PEM", help="a file with the key and the certificates; makes it wss://"
    )
    options = parser.parse_args()

    listener: Any = unix_listener(options.unix) if options.unix else ("127.0.0.1", options.port)
    security: dict[str, Any] = {}
    if options.certificate:
        # gevent's own class: a context of the standard library's would block every greenlet.
        context = SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(options.certificate)
        security["ssl_context"] = context

    server = WSGIServer(listener, WSGIApp(echo, max_peers=10_000), log=None, **security)

    def stop() -> None:
        drain_all(10.0)
        server.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        gevent.signal_handler(number, stop)
    server.start()
    if options.unix:
        print(f"listening on ws+unix://{options.unix}:/", flush=True)
    else:
        print(f"listening on {'wss' if security else 'ws'}://127.0.0.1:{server.server_port}/", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
