"""An echo server for tests and first steps: `python -m muxws_green.echo`.

A stream whose opener has ended gets its payload back; any other gets each payload back as it comes, and the end when
the opener ends.
"""

from __future__ import annotations

import argparse
import logging
import signal
from collections.abc import Callable, Sequence
from typing import Any, Final

import gevent
from gevent import pywsgi
from gevent.event import Event

from muxws_green.api import Server, WSGIApp
from muxws_green.codecs import MsgpackCodec, register_codec
from muxws_green.interfaces import ICodec
from muxws_green.protocol.states import StreamState
from muxws_green.runtime.roster import drain_all
from muxws_green.runtime.stream import Stream

#: Seconds that streams may take to finish when the server is told to stop.
DRAIN_SECONDS = 10.0

#: What can host it, by the name of the option `--via`.
HOSTS: Final = ("server", "pywsgi", "gevent-websocket")


def echo(payload: Any, stream: Stream) -> None:
    """Answer a stream with what it brings."""
    if stream.state is StreamState.HALF_CLOSED_REMOTE:
        stream.reply(payload)
        return
    stream.send(payload)
    for item in stream:
        stream.send(item)
    stream.end()


def make_server(address: tuple[str, int], app: WSGIApp, via: str) -> pywsgi.WSGIServer:
    """A server that is not started yet.

    Args:
        address: Host and port; 0 lets the kernel choose.
        app: What it serves.
        via: One of `HOSTS`.
    """
    if via == "gevent-websocket":
        from geventwebsocket.handler import WebSocketHandler

        from muxws_green.transports.hosts.geventwebsocket import leave_upgrade_to_app

        server = pywsgi.WSGIServer(address, app, handler_class=WebSocketHandler, log=None)
        # An attribute that gevent-websocket's handler looks for on whatever server it runs under.
        vars(server)["pre_start_hook"] = leave_upgrade_to_app
        return server
    if via == "pywsgi":
        return pywsgi.WSGIServer(address, app, log=None)
    return Server(address, app, log=None)


def run(
    address: tuple[str, int],
    codec: ICodec | str | None,
    via: str,
    max_concurrent_streams: int,
    listening: Callable[[str], object],
) -> None:
    """Serve until SIGINT or SIGTERM, then drain.

    Args:
        address: Host and port; 0 lets the kernel choose.
        codec: As `WSGIApp` takes it.
        via: One of `HOSTS`.
        max_concurrent_streams: Streams that a client may have.
        listening: Called with the URL to dial, once it can be.

    Raises:
        OSError: One cannot listen there.
    """
    app = WSGIApp(echo, codec=codec, max_concurrent_streams=max_concurrent_streams)
    server = make_server(address, app, via)
    stopping = Event()
    signals = [gevent.signal_handler(number, stopping.set) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        server.start()
        host = f"[{address[0]}]" if ":" in address[0] else address[0]
        listening(f"ws://{host}:{server.server_port}/")
        stopping.wait()
        if isinstance(server, Server):
            server.drain(DRAIN_SECONDS)
        else:
            server.stop_accepting()
            drain_all(DRAIN_SECONDS)
            server.stop(timeout=1.0)
    finally:
        for watcher in signals:
            watcher.cancel()


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGINT or SIGTERM, with the options of `muxws-green echo` and without the libraries that it needs.

    Args:
        arguments: The command line without the program's name; None: `sys.argv`.

    Returns:
        The exit code.
    """
    parser = argparse.ArgumentParser(prog="python -m muxws_green.echo", description="A muxws.v1 echo server.")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=8000, help="port; 0 lets the system choose (default: %(default)s)")
    parser.add_argument("--codec", default=None, help="codec name (default: what MUXWS_CODEC says, or json)")
    parser.add_argument(
        "--via",
        choices=HOSTS,
        default="server",
        help="what hosts it: our Server, a plain pywsgi server, or gevent-websocket's handler (default: %(default)s)",
    )
    parser.add_argument(
        "--max-concurrent-streams", type=int, default=100, help="streams that a client may have (default: %(default)s)"
    )
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    register_codec("msgpack", MsgpackCodec())

    def listening(url: str) -> None:
        print(f"echo server listening on {url}", flush=True)

    run((options.host, options.port), options.codec, options.via, options.max_concurrent_streams, listening)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
