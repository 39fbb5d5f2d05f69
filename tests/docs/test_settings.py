"""docs/settings.md names every option, with its default."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from muxws_green import CountingHeartbeat, IdleHeartbeat, Peer, Reconnect, Server, Stream, WSGIApp, connect, drain_all
from muxws_green.api import default_clock
from muxws_green.api.accepting import _AcceptOptions
from muxws_green.api.options import DEFAULT
from muxws_green.transports import server
from tests.docs.pages import page, rows

#: Defaults that the page calls by a name.
NAMED = {"IdleHeartbeat": DEFAULT, "default_clock": default_clock}


def said(heading: str) -> dict[str, Any]:
    """option -> default, as the page has them; each row says a unit and what the option is good for."""
    options = {}
    for option, default, unit, protects_from in rows(page("settings"), f"## {heading}"):
        assert unit
        assert protects_from
        text = default.strip("`")
        assert option.strip("`") not in options
        options[option.strip("`")] = NAMED[text] if text in NAMED else ast.literal_eval(text)
    return options


def have(function: Callable[..., Any], *leave_out: str) -> dict[str, Any]:
    """option -> default, of what has one."""
    return {
        name: parameter.default
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.default is not parameter.empty and name not in leave_out
    }


def of_call(function: Callable[..., Any], name: str) -> dict[str, Any]:
    # A method that a class has inherited is the class's all the same.
    owner = next((cls for cls in (Peer, Stream, Server) if getattr(cls, function.__name__, None) is function), None)
    called = function.__name__ if owner is None else f"{owner.__name__}.{function.__name__}"
    return {f"{called} {name}": have(function)[name]}


def test_connect() -> None:
    assert said("Both ends") | said("connect alone") == have(connect)


def test_accepting() -> None:
    assert said("Both ends") | said("accept, serve, WSGIApp and Server alone") == have(_AcceptOptions)


def test_what_is_said_of_both_ends_holds_for_both() -> None:
    both = have(connect).keys() & have(_AcceptOptions).keys()
    assert said("Both ends").keys() == both


def test_wsgi_app() -> None:
    assert said("WSGIApp alone, and Server beside a handler") == have(WSGIApp)


def test_server() -> None:
    assert said("Server alone") == have(server.Server)
    assert have(Server)["head_timeout"] == have(server.Server)["head_timeout"]


def test_policies() -> None:
    assert said("Heartbeats and schedules") == {
        f"{policy.__name__}.{name}": default
        for policy in (IdleHeartbeat, CountingHeartbeat, Reconnect)
        for name, default in have(policy).items()
    }


def test_calls() -> None:
    calls: list[tuple[Callable[..., Any], str]] = [
        (Peer.request, "timeout"),
        (Stream.result, "timeout"),
        (Stream.receive, "timeout"),
        (Peer.open, "wait"),
        (Peer.notify, "wait"),
        (Peer.ping, "timeout"),
        (Peer.close, "drain"),
        (Peer.on_stream, "stop"),
        (Server.drain, "timeout"),
        (drain_all, "timeout"),
    ]
    assert said("Single calls") == {name: default for call in calls for name, default in of_call(*call).items()}


@pytest.mark.parametrize("owner", [Peer, Stream])
def test_every_timeout_of_a_call_is_there(owner: type) -> None:
    told = said("Single calls")
    for name, method in inspect.getmembers(owner, inspect.isfunction):
        if not name.startswith("_"):
            for option in {"timeout", "drain", "wait", "stop"} & have(method).keys():
                assert f"{owner.__name__}.{name} {option}" in told
