"""What gunicorn is told besides its command line: how its workers send their peers away."""

from __future__ import annotations

import signal
from typing import Any

import gevent

from muxws_green.runtime.roster import drain_all


def post_worker_init(worker: Any) -> None:
    # One of the tests runs a worker that has no gevent in it.
    if worker.cfg.worker_class_str != "sync":
        gevent.signal_handler(signal.SIGTERM, lambda: (worker.handle_exit(None, None), drain_all()))
