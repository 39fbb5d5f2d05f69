"""`request`, `stream` and `notify`: one payload out, and one, any number or none back."""

from __future__ import annotations

from typing import Any

import click

from muxws_green.cli.options import Dial, dials, payload_argument, reporting, typed_payload
from muxws_green.cli.output import Output
from muxws_green.cli.values import to_json

_NOTE = "JSON is the payload: - reads it from standard input, @FILE from a file."


def show_payload(out: Output, payload: Any, **fields: Any) -> None:
    """Print one payload of the remote's."""
    out.event("payload", to_json(payload), **fields, payload=payload)


@click.command(epilog=_NOTE)
@dials
@payload_argument
@reporting()
def request(out: Output, dial: Dial, payload: str) -> None:
    """Send one payload, wait for the one that answers it, and print that."""
    value = typed_payload(payload, dial.codec, "JSON")
    with dial.connected(out) as peer:
        with out.progress(lambda seconds: f"waiting for the answer: {seconds} s"):
            answer = peer.request(value, timeout=dial.timeout)
        show_payload(out, answer)


@click.command(epilog=_NOTE)
@dials
@payload_argument
@reporting()
def stream(out: Output, dial: Dial, payload: str) -> None:
    """Send one payload and print each that comes back, as it comes.

    A stream may be silent for as long as it likes; --timeout is for connecting. Ctrl-C, and a reader of the output that
    goes, tell the remote to stop.
    """
    value = typed_payload(payload, dial.codec, "JSON")
    payloads = 0
    with dial.connected(out) as peer, out.progress(lambda seconds: f"{payloads} payloads in {seconds} s"):
        with peer.open(value, end=True) as opened:
            for item in opened:
                payloads += 1
                show_payload(out, item, stream=opened.id)
        out.event("end", None, stream=opened.id, payloads=payloads, trailers=opened.trailers)


@click.command(epilog=_NOTE)
@dials
@payload_argument
@reporting()
def notify(out: Output, dial: Dial, payload: str) -> None:
    """Send one payload of which no answer is wanted.

    Waits up to --timeout seconds until the remote has done with it, since its handler is stopped when the connection
    ends. What it answers, a failure included, is not looked at.
    """
    value = typed_payload(payload, dial.codec, "JSON")
    with dial.connected(out) as peer:
        peer.notify(value)
        with out.progress(lambda seconds: f"waiting until the remote has done with it: {seconds} s"):
            peer.close(drain=dial.timeout)
    out.event("sent", None)
