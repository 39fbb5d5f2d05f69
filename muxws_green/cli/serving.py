"""`echo`: the echo server."""

from __future__ import annotations

import logging

import click

from muxws_green import echo as echoing
from muxws_green.cli.codes import ExitCode
from muxws_green.cli.failures import CommandFailed, Failure
from muxws_green.cli.options import CODECS, named_codec, reporting
from muxws_green.cli.output import Output


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=8000,
    show_default=True,
    help="Port to listen on; 0 lets the system choose.",
)
@click.option(
    "--codec", type=click.Choice(CODECS), help="How payloads are encoded.  [default: what MUXWS_CODEC says, or json]"
)
@click.option(
    "--via",
    type=click.Choice(echoing.HOSTS),
    default="server",
    show_default=True,
    help="What hosts it: our Server, a plain pywsgi server, or gevent-websocket's handler.",
)
@click.option(
    "--max-concurrent-streams",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="Streams that a client may have.",
)
@reporting(serves=True)
def echo(out: Output, host: str, port: int, codec: str | None, via: str, max_concurrent_streams: int) -> None:
    """Run a server that sends back what it gets, until Ctrl-C or SIGTERM; then it drains.

    A stream whose opener has ended gets its payload back; any other gets each payload back as it comes.
    """
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")

    def listening(url: str) -> None:
        out.event("listening", f"echo server listening on {url}", url=url)

    try:
        echoing.run((host, port), named_codec(codec), via, max_concurrent_streams, listening)
    except OSError as error:
        raise cannot_listen(error, host, port) from error


def cannot_listen(error: OSError, host: str, port: int) -> CommandFailed:
    """The end of a server that has no place."""
    hint = "choose another: --port 0 takes one that is free, --host an address of this machine"
    text = error.strerror or str(error)
    return CommandFailed(Failure(ExitCode.USAGE, "listen", f"cannot listen on {host} port {port}: {text}", hint))
