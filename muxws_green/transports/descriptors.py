"""Room for the descriptors of many connections, made before they come.

Linux keeps the descriptors of a process in a table that it doubles when it is full, at 256, 512 and so on. Where the
process has a second thread, and a resolver's is enough, it then waits for every processor to have noticed: ten
milliseconds and more inside `accept` or `socket`, in which no greenlet runs. Made early, when there is mostly one
thread, that costs nothing; later it is one such wait in place of five. So applications and servers make it from the
start, and whoever else comes to have many connections a little before the table would grow for the first time.
"""

from __future__ import annotations

import os
import sys

#: How many descriptors there is room for from the start; beyond it the table grows as it always does. It takes 8 bytes
#: for each.
ROOM = 4_096

#: A descriptor from this number on is a sign of many connections.
MANY = 128

_made = False


def make_room() -> None:
    """Have the table hold `ROOM` descriptors, or as many as the process may have. Once for each process."""
    global _made
    if not _made:
        _made = True
        _grow()


def make_room_behind(descriptor: int) -> None:
    """`make_room`, where this descriptor is a sign of many."""
    if descriptor >= MANY:
        make_room()


if sys.platform == "linux":
    import fcntl
    import resource

    def _grow() -> None:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        most = ROOM if limit == resource.RLIM_INFINITY else min(ROOM, limit)
        try:
            low = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            try:
                # The table never shrinks again.
                os.close(fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, most - 1))
            finally:
                os.close(low)
        except OSError:
            # No descriptor is left, or there is no such file in here. It is only about speed.
            pass

else:  # pragma: no cover - CI runs on Linux

    def _grow() -> None:
        """Nothing: only Linux is known to need it."""


def _forked() -> None:
    # A child's table is as small as it can be.
    global _made
    _made = False


os.register_at_fork(after_in_child=_forked)
