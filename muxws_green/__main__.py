"""The command line: `python -m muxws_green echo` serves, `python -m muxws_green request URL JSON` calls."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from muxws_green import echo
from muxws_green.api import connect
from muxws_green.codecs import MsgpackCodec, register_codec
from muxws_green.errors import MuxwsError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: The command line without the program's name; None: `sys.argv`.

    Returns:
        The exit code: 0, 1 where a call failed, 2 where the command line is wrong.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["echo"]:
        return echo.main(words[1:])
    parser = argparse.ArgumentParser(prog="python -m muxws_green", description="muxws.v1 from the command line.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("echo", help="run an echo server; `echo --help` tells its options")
    request = commands.add_parser("request", help="send one payload and print the answer")
    request.add_argument("url", metavar="URL", help="such as ws://127.0.0.1:8000/")
    request.add_argument("payload", metavar="JSON", help="the payload, as JSON")
    request.add_argument("--codec", default=None, help="codec name (default: what MUXWS_CODEC says, or json)")
    request.add_argument("--timeout", type=float, default=10.0, help="seconds to wait (default: %(default)s)")
    return _request(parser.parse_args(words))


def _request(options: argparse.Namespace) -> int:
    try:
        payload = json.loads(options.payload)
    except ValueError as error:
        print(f"the payload is not JSON: {error}", file=sys.stderr)
        return 2
    register_codec("msgpack", MsgpackCodec())
    try:
        with connect(options.url, codec=options.codec, open_timeout=options.timeout) as peer:
            print(json.dumps(peer.request(payload, timeout=options.timeout), default=repr))
    except (MuxwsError, OSError) as error:
        print(f"{options.url}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
