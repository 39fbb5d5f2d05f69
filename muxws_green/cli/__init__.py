"""The command line: `muxws-green …`, or `python -m muxws_green …`.

It stands on the libraries of the extra `cli`, which nobody who imports `muxws_green` needs: this module loads neither
them nor the rest of this package before `main` is called.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec

#: What the extra `cli` brings, by the name of the module.
NEEDED = ("click", "prompt_toolkit")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: The command line without the program's name; None: `sys.argv`.

    Returns:
        The exit code, one of `muxws_green.cli.codes.ExitCode`; 2 also where the extra `cli` is not installed, which is
        said in one line.
    """
    _hold_standard_descriptors()
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        sys.stderr.write(f'the command line needs {" and ".join(missing)}: pip install "muxws-green[cli]"\n')
        return 2
    try:
        from muxws_green.cli.app import run

        return run(arguments)
    except KeyboardInterrupt:
        # Ctrl-C before there was anything to interrupt.
        return 130


def _hold_standard_descriptors() -> None:
    """Put something in the place of standard descriptors that are closed: a socket would get their numbers, and what is
    printed would be sent to the remote. Writing still fails.
    """
    held = 0
    while held <= 2:
        held = os.open(os.devnull, os.O_RDONLY)
    os.close(held)
