"""How gunicorn runs `gunicorn_app`.

    gunicorn -c servers/gunicorn_conf.py

The port is in the environment variable PORT (8000 without it). On SIGTERM the worker takes no more connections and
sends its peers away with a close frame, and ends as soon as they are gone.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import gevent

from muxws_green import drain_all

bind = f"127.0.0.1:{os.environ.get('PORT', '8000')}"
pythonpath = str(Path(__file__).parent)
wsgi_app = "gunicorn_app:application"

worker_class = "gevent"
# Each connection holds one of these for as long as it lives.
worker_connections = 10_000
# Not shorter than the time that `drain_all` may take.
graceful_timeout = 15


def post_worker_init(worker: Any) -> None:
    """Have SIGTERM drain: gunicorn itself would sit through the grace time, and then cut everybody off."""
    gevent.signal_handler(signal.SIGTERM, lambda: (worker.handle_exit(None, None), drain_all(10.0)))


def when_ready(server: Any) -> None:
    """Say where it listens."""
    print(
        f"listening on ws://{server.LISTENERS[0].sock.getsockname()[0]}:{server.LISTENERS[0].sock.getsockname()[1]}/ws"
    )
