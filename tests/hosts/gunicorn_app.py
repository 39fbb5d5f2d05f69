"""What gunicorn is told to serve; `MUXWS_TEST_APP` names one of `apps`."""

from __future__ import annotations

import os
from typing import Any

from tests.hosts.apps import APPS, SUBPROTOCOL


def load() -> Any:
    return APPS[os.environ["MUXWS_TEST_APP"]]()


class Selecting:
    """gevent-websocket asks the application which subprotocol to select, by the path."""

    def __init__(self) -> None:
        self._app = load()

    def __call__(self, environ: Any, start_response: Any) -> Any:
        return self._app(environ, start_response)

    def app_protocol(self, path: str) -> str:
        select = getattr(self._app, "app_protocol", None)
        return SUBPROTOCOL if select is None else select(path)


application = Selecting()
