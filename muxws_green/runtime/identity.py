"""Names for connections that are unique in a process and tell processes apart in a shared log."""

from __future__ import annotations

import itertools
import os
import random


def _draw() -> str:
    # For reading logs, not for security.
    return f"{random.getrandbits(12):03x}"


_prefix = _draw()
_counter = itertools.count()


def _after_fork() -> None:
    global _prefix
    # Forked workers inherit the state of the generator too.
    random.seed()
    _prefix = _draw()


os.register_at_fork(after_in_child=_after_fork)


def new_connection_id() -> str:
    """`<process prefix>-<counter>`, such as `a3f-17` (PROTOCOL §7)."""
    return f"{_prefix}-{next(_counter)}"
