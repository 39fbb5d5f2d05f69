"""Names for connections that are unique in a process and tell processes apart in a shared log."""

from __future__ import annotations

import itertools
import os


def _draw() -> str:
    # Not from `random`, whose state is the application's and is inherited by forked workers.
    return os.urandom(2).hex()[:3]


_prefix = _draw()
_counter = itertools.count()


def _after_fork() -> None:
    global _prefix
    _prefix = _draw()


os.register_at_fork(after_in_child=_after_fork)


def new_connection_id() -> str:
    """`<process prefix>-<counter>`, such as `a3f-17` (PROTOCOL §7)."""
    return f"{_prefix}-{next(_counter)}"
