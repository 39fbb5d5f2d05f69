"""The feature matrix is about the versions that it names, and the figures in it are those of the packages compared."""

from __future__ import annotations

import inspect
from dataclasses import fields
from importlib.metadata import version
from typing import Any

import pytest

import muxws_green
from tests.docs.pages import page

HEAD = next(line for line in page("feature-matrix").splitlines() if line.startswith("| | muxws_green"))
ROWS = {
    cells[0]: cells[1:]
    for line in page("feature-matrix").splitlines()
    if line.startswith("| ")
    for cells in [[cell.strip() for cell in line.split("|")[1:-1]]]
}
OURS, MUXWS, ZERORPC, SOCKETIO, GEVENTWEBSOCKET = range(5)


def defaults(function: Any) -> dict[str, Any]:
    return {name: parameter.default for name, parameter in inspect.signature(function).parameters.items()}


@pytest.mark.parametrize("name", ["muxws", "zerorpc", "gevent-websocket"])
def test_the_versions_are_those_that_are_tested_with(name: str) -> None:
    assert f"| {name} {version(name)} |" in HEAD


def test_our_version() -> None:
    assert muxws_green.__version__.startswith(HEAD.split("|")[2].split()[1])


@pytest.mark.interop
def test_the_figures_of_muxws() -> None:
    import muxws

    there, here = defaults(muxws.connect), defaults(muxws_green.connect)
    for name in ("ping_interval", "ping_timeout", "max_payload_bytes", "max_concurrent_streams"):
        assert there[name] == here[name]
    schedule = {field.name: field.default for field in fields(muxws.Reconnect)}
    assert schedule == {field.name: field.default for field in fields(muxws_green.Reconnect)}
    assert ROWS["a dead remote is found"][MUXWS] == "by the dialer, 30 s by default"
    assert not {"ping_interval", "heartbeat"} & {*defaults(muxws.accept)}
    assert ROWS["handlers at once for a client"][MUXWS].startswith("100,")
    assert ROWS["size of one message or payload"][MUXWS].startswith(f"{there['max_payload_bytes'] >> 20} MiB")


@pytest.mark.interop
def test_the_figures_of_zerorpc() -> None:
    import zerorpc

    assert defaults(zerorpc.Server)["heartbeat"] == 5
    assert ROWS["a dead remote is found"][ZERORPC].endswith(f" {2 * 5} s")
    window = defaults(zerorpc.channel.BufferedChannel)["inqueue_size"]
    assert f"a window of {window} items" in ROWS["a slow reader holds back its sender"][ZERORPC]


@pytest.mark.interop
def test_the_figures_of_python_socketio() -> None:
    import engineio
    import socketio

    there = defaults(engineio.base_server.BaseServer)
    assert ROWS["a dead remote is found"][SOCKETIO].split()[3] == str(there["ping_interval"] + there["ping_timeout"])
    assert there["max_http_buffer_size"] == 1_000_000
    dials = defaults(socketio.base_client.BaseClient)
    assert f"{dials['reconnection_delay']} s to {dials['reconnection_delay_max']} s" in ROWS["dials again"][SOCKETIO]
