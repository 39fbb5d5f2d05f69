"""The commands put together, and the one place where a command line becomes an exit code."""

from __future__ import annotations

from collections.abc import Sequence

import click

from muxws_green import __version__
from muxws_green.cli.benching import bench
from muxws_green.cli.calling import notify, request, stream
from muxws_green.cli.codes import MEANINGS, ExitCode
from muxws_green.cli.connecting import connect
from muxws_green.cli.pinging import ping
from muxws_green.cli.serving import echo
from muxws_green.cli.tapping import tap

_EPILOG = "\b\nExit codes:\n" + "\n".join(f"  {code:>3}  {text.replace('`', '')}" for code, text in MEANINGS.items())


@click.group(epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="muxws-green")
def app() -> None:
    """Speak muxws.v1: many independent, cancellable streams over one WebSocket.

    To try it: `muxws-green echo` in one terminal, `muxws-green connect ws://127.0.0.1:8000/` in another.
    """


for command in (echo, connect, request, stream, notify, ping, tap, bench):
    app.add_command(command)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: The command line without the program's name; None: `sys.argv`.

    Returns:
        The exit code.
    """
    try:
        result = app.main(None if arguments is None else list(arguments), standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return ExitCode.INTERRUPTED
    except SystemExit:
        # How click ends where the reader of its help has gone.
        return ExitCode.OK
    return int(result or ExitCode.OK)
