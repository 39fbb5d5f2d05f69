"""What the exit codes mean, once: for scripts, for `--help` and for the page about the command line."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class ExitCode(IntEnum):
    """How a command ended."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NO_CONNECTION = 3
    TIMEOUT = 4
    LOST = 5
    INTERRUPTED = 130


MEANINGS: Final = {
    ExitCode.OK: "done; also where whoever read the output wanted no more of it",
    ExitCode.FAILED: "the remote failed, refused or reset the call, or answered no ping; or output cannot be written",
    ExitCode.USAGE: "the command line is wrong: an option, a URL, a payload, a file, a codec",
    ExitCode.NO_CONNECTION: "no connection: nobody listens, TLS, a refused upgrade, another codec",
    ExitCode.TIMEOUT: "something took longer than `--timeout`",
    ExitCode.LOST: "the connection was lost in the middle",
    ExitCode.INTERRUPTED: "Ctrl-C; the remote was told to stop",
}
