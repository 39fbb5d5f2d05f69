"""Servers as child processes, and what their clients see; every wait is bounded and every child is ended by its id."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gevent import socket as gevent_socket

from tests.transports.raw import PATIENCE, authority, client_context

ROOT = Path(__file__).parents[2]

#: Host name -> gunicorn's worker class.
WORKERS = {
    "gunicorn gevent": "gevent",
    "gunicorn gevent_wsgi": "gevent_wsgi",
    "gunicorn gevent_pywsgi": "gevent_pywsgi",
    "gunicorn gevent-websocket handler": "muxws_green.transports.hosts.geventwebsocket.GreenWebSocketWorker",
    "gunicorn gevent-websocket after": "geventwebsocket.gunicorn.workers.GeventWebSocketWorker",
    "gunicorn sync": "sync",
}


class HostProcess:
    """A running server. Made by `serving`."""

    def __init__(
        self, process: subprocess.Popen[bytes], address: Any, family: int, directory: Path, *, tls: bool
    ) -> None:
        self.process = process
        self.address = address
        self.family = family
        self.tls = tls
        self._directory = directory
        self._clients: list[Any] = []

    def connect(self) -> Any:
        """A connection to it, closed by `close_clients` at the latest."""
        sock: Any = gevent_socket.socket(self.family, socket.SOCK_STREAM)
        try:
            sock.settimeout(PATIENCE)
            sock.connect(self.address)
            if self.tls:
                sock = client_context().wrap_socket(sock, server_hostname="localhost")
        finally:
            self._clients.append(sock)
        return sock

    def close_clients(self) -> None:
        """Close all connections that have been made to it."""
        for sock in self._clients:
            sock.close()
        self._clients.clear()

    def access_log(self) -> list[str]:
        """The lines that tell of requests; not the one that is being written, of which half may be there."""
        return (self._directory / "access").read_text().rpartition("\n")[0].splitlines()

    def errors(self) -> str:
        """What it has written to its standard error."""
        return (self._directory / "stderr").read_text()

    def wait(self) -> float:
        """Wait until it is gone; in how many seconds it was."""
        begun = time.monotonic()
        self.process.wait(PATIENCE)
        return time.monotonic() - begun

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Send a signal, and wait until it is gone."""
        if self.process.poll() is None:
            self.process.send_signal(number)
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(PATIENCE)
                raise


@contextmanager
def serving(
    host: str, directory: Path, app: str = "plain", *, tls: bool = False, unix: bool = False
) -> Iterator[HostProcess]:
    """One of the hosts, serving one of `apps`; ended, and asked to be silent, when the block is left."""
    family = socket.AF_UNIX if unix else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.bind(str(directory / "sock") if unix else ("127.0.0.1", 0))
        listener.listen(128)
        address, fd = listener.getsockname(), listener.fileno()
        log = directory / "access"
        log.touch()
        pem = ""
        if tls:
            certificate = authority().issue_cert("localhost", "127.0.0.1")
            pem = str(directory / "server.pem")
            certificate.private_key_and_cert_chain_pem.write_to_path(pem)
        if host in WORKERS:
            command = [
                *(
                    "-m",
                    "gunicorn",
                    "-c",
                    str(ROOT / "tests/hosts/gunicorn_conf.py"),
                    "-k",
                    WORKERS[host],
                    "--bind",
                    f"fd://{fd}",
                    "--log-level",
                    "warning",
                ),
                *("--access-logfile", str(log), "--graceful-timeout", "10", "--no-control-socket"),
                *(("--certfile", pem) if pem else ()),
                "tests.hosts.gunicorn_app:application",
            ]
        else:
            command = ["-m", "tests.hosts.serve", host, app, str(fd), str(log), *([pem] if pem else [])]
        with (directory / "stderr").open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, *command],
                cwd=ROOT,
                env={**os.environ, "MUXWS_TEST_APP": app, "PYTHONPATH": str(ROOT)},
                pass_fds=[fd],
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
            )
    server = HostProcess(process, address, family, directory, tls=tls)
    try:
        yield server
    finally:
        server.close_clients()
        # gunicorn takes a second longer to stop gracefully.
        server.stop(signal.SIGQUIT if host in WORKERS else signal.SIGTERM)
