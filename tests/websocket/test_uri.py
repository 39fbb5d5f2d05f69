"""URLs: what they mean, what is refused, and that nothing secret is shown."""

from __future__ import annotations

import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muxws_green.errors import TransportUrlError
from muxws_green.websocket import WsUri, parse_ws_uri


@pytest.mark.parametrize(
    "uri, parsed",
    [
        ("ws://example.com", WsUri(False, "example.com", 80, "/", None)),
        ("wss://example.com", WsUri(True, "example.com", 443, "/", None)),
        ("WS://EXAMPLE.com:8000/Path?Q=1", WsUri(False, "example.com", 8000, "/Path?Q=1", None)),
        ("ws://example.com?q=1", WsUri(False, "example.com", 80, "/?q=1", None)),
        ("ws://[::1]:9/a", WsUri(False, "::1", 9, "/a", None)),
        ("ws://example.com/a;b=1/c;d", WsUri(False, "example.com", 80, "/a;b=1/c;d", None)),
        ("ws://example.com/%7Ea%2Fb", WsUri(False, "example.com", 80, "/%7Ea%2Fb", None)),
        ("ws://user:p%40ss:w@example.com/", WsUri(False, "example.com", 80, "/", ("user", "p@ss:w"))),
        ("ws://:only@example.com/", WsUri(False, "example.com", 80, "/", ("", "only"))),
        (
            "ws://müller.example/straße?ä=ö",
            WsUri(False, "xn--mller-kva.example", 80, "/stra%C3%9Fe?%C3%A4=%C3%B6", None),
        ),
    ],
)
def test_the_parts(uri, parsed):
    assert parse_ws_uri(uri) == parsed


SECRET = "hunter2"


@pytest.mark.parametrize(
    "uri",
    [
        "",
        SECRET,
        f"http://user:{SECRET}@example.com/",
        f"user:{SECRET}@example.com",
        "ws:example.com",
        f"ws:///path?token={SECRET}",
        f"ws://:80/?token={SECRET}",
        f"ws://example.com/?token={SECRET}#fragment",
        f"ws://example.com:port/?token={SECRET}",
        f"ws://example.com:65536/?token={SECRET}",
        f"ws://example.com:0/?token={SECRET}",
        f"ws://user:pa/{SECRET}@example.com/",
        f"ws://user:pa?{SECRET}@example.com/",
        f"ws://[::1/?token={SECRET}",
        f"ws://example.com/a b?token={SECRET}",
        f"ws://exa mple.com/?token={SECRET}",
        f"ws://example.com/?token={SECRET} x",
        f"ws://example.com/?token={SECRET}\x00",
        f"ws://{SECRET}@example.com/",
        f"ws://na%3Ame:{SECRET}@example.com/",
        f"ws://user:{SECRET}%ff@example.com/",
        f"ws://user:{SECRET}\ud800@example.com/",
        f"ws://{'a' * 64}.example/é?token={SECRET}",
    ],
)
def test_what_is_no_websocket_url_raises_and_shows_nothing(uri):
    with pytest.raises(TransportUrlError) as raised:
        parse_ws_uri(uri)
    shown = "".join(traceback.format_exception(raised.value))
    assert SECRET not in shown
    assert "user" not in str(raised.value).replace("a user name", "").replace("username", "")
    assert isinstance(raised.value, ValueError)


@pytest.mark.parametrize("uri", ["http://example.com/", "ws://user@example.com", "ws://example.com:0/", "ws://a/#f"])
def test_the_message_says_what_is_wrong(uri):
    with pytest.raises(TransportUrlError, match=r"scheme|password|port 0|fragment"):
        parse_ws_uri(uri)


def test_the_repr_shows_neither_user_info_nor_query():
    shown = repr(parse_ws_uri(f"wss://user:{SECRET}@example.com:444/path?token={SECRET}"))
    assert shown == "<WsUri wss example.com 444 /path>"


@given(st.one_of(st.text(max_size=40), st.text(max_size=40).map("ws://".__add__)))
def test_any_text_is_parsed_or_refused(uri):
    try:
        parsed = parse_ws_uri(uri)
    except TransportUrlError:
        return
    assert f"{parsed.host}{parsed.resource_name}".isascii()
    assert f"{parsed.host}{parsed.resource_name}".isprintable()
    assert 0 < parsed.port < 65536
