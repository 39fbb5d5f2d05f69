"""Which URLs can be dialled, what they mean, and that no message repeats what may be secret in them."""

from __future__ import annotations

import socket

import pytest

from muxws_green.errors import TransportUnsupportedError, TransportUrlError
from muxws_green.transports.proxy import HttpProxy, parse_proxy, proxy_from_environment
from muxws_green.transports.urls import parse_url


@pytest.mark.parametrize(
    "url, host, port, secure",
    [
        ("ws://Example.org", "example.org", 80, False),
        ("wss://example.org/x?y=z", "example.org", 443, True),
        ("ws://127.0.0.1:8000/", "127.0.0.1", 8000, False),
        ("WS://[::1]:81/", "::1", 81, False),
        ("wss://user:pw@bücher.example/", "xn--bcher-kva.example", 443, True),
    ],
)
def test_tcp_urls(url, host, port, secure):
    target = parse_url(url)
    assert (target.host, target.port, target.secure, target.socket_path) == (host, port, secure, None)
    assert target.uri == url


@pytest.mark.parametrize("url", ["ws://example.org/route", "wss://example.org"])
def test_what_a_url_means_is_found_out_once(url):
    assert parse_url(url) is parse_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "ws://user:secret@example.org/",
        "wss://example.org/?token=secret",
    ],
)
def test_a_url_that_may_hold_secrets_is_not_kept(url):
    assert parse_url(url) == parse_url(url)
    assert parse_url(url) is not parse_url(url)


def test_the_place_of_an_address_can_be_read_back():
    assert parse_url("ws://[::1]:81/").place == "[::1]:81"
    assert parse_url("ws://127.0.0.1/").place == "127.0.0.1:80"
    assert parse_url("ws+unix:///a.sock").place == "/a.sock"


@pytest.mark.parametrize(
    "url, path, uri",
    [
        ("ws+unix:///run/a.sock", "/run/a.sock", "ws://localhost/"),
        ("ws+unix:///run/a.sock:", "/run/a.sock", "ws://localhost/"),
        ("ws+unix:///run/a.sock:/ws?tenant=42", "/run/a.sock", "ws://localhost/ws?tenant=42"),
        ("ws+unix:///a.sock:/r:x", "/a.sock", "ws://localhost/r:x"),
        ("ws+unix:///a.sock:/r?t=a:b", "/a.sock", "ws://localhost/r?t=a:b"),
        ("ws+unix:///a.sock?x:/r", "/a.sock?x", "ws://localhost/r"),
        ("ws+unix:///a%20b.sock:/r", "/a%20b.sock", "ws://localhost/r"),
        ("ws+unix://host/a.sock:/r", "/a.sock", "ws://host/r"),
        ("WS+UNIX:/a.sock:/r", "/a.sock", "ws://localhost/r"),
        ("ws+unix:relative.sock:/r", "relative.sock", "ws://localhost/r"),
    ],
)
def test_unix_urls_are_cut_at_the_first_colon(url, path, uri):
    target = parse_url(url)
    assert (target.socket_path, target.uri, target.secure) == (path, uri, False)


@pytest.mark.parametrize(
    "url",
    [
        "http://user:secret@host/?secret",
        "user:secret",
        "ws://user:secret@/",
        "ws://user:secret@host:port/",
        "ws://user:secret@host:0/",
        "ws://secret@host/",
        "ws://user:secret@host/#secret",
        "ws://user:secret@host/\n?secret",
        "ws://user:secret@" + "a" * 64 + "/?secret",
        "ws://user:secret@[::1/",
        "wss+unix:///a.sock:/?secret",
        "ws+unix://user:secret@",
        "ws+unix://:/secret",
        "ws+unix:///a.sock:secret",
        "ws+unix:///a.sock:/r#secret",
        "ws+unix:///a\n.sock:/r?secret",
        "ws+unix://user:secret@[::1/a.sock",
        "ws+unix:///" + "a" * 107 + ":/?secret",
        "ws+unix://user:secret@ho st/a.sock:/",
    ],
)
def test_what_cannot_be_dialled_is_refused_without_showing_secrets(url):
    with pytest.raises(TransportUrlError) as caught:
        parse_url(url)
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_the_repr_of_a_target_shows_no_secrets():
    assert "secret" not in repr(parse_url("ws://user:secret@host/?secret"))


def test_a_platform_without_unix_sockets_says_so(monkeypatch):
    monkeypatch.delattr(socket, "AF_UNIX")
    with pytest.raises(TransportUnsupportedError, match="Unix"):
        parse_url("ws+unix:///a.sock")


def test_proxy_urls():
    assert parse_proxy("http://proxy.example") == HttpProxy("proxy.example", 80)
    assert parse_proxy("http://[::1]:3128/") == HttpProxy("::1", 3128)
    assert parse_proxy("http://Aladdin:open%20sesame@p:1").authorization == "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="
    assert "QWxh" not in repr(parse_proxy("http://Aladdin:open%20sesame@p:1"))


@pytest.mark.parametrize(
    "url, error",
    [
        ("https://u:secret@p", TransportUnsupportedError),
        ("socks5://u:secret@p", TransportUnsupportedError),
        ("ftp://u:secret@p", TransportUrlError),
        ("p:secret", TransportUrlError),
        ("http://u:secret@", TransportUrlError),
        ("http://u:secret@p:0", TransportUrlError),
        ("http://u:secret@p:99999", TransportUrlError),
        ("http://u:secret@p/secret", TransportUrlError),
        ("http://u:secret@p?secret", TransportUrlError),
        ("http://u:%ff@p", TransportUrlError),
        ("http://a%3Ab:secret@p", TransportUrlError),
        ("http://u:secret@" + "a" * 64, TransportUrlError),
    ],
)
def test_proxies_that_cannot_be_used_are_refused_without_showing_secrets(url, error):
    with pytest.raises(error) as caught:
        parse_proxy(url)
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    "environment, url, host",
    [
        ({}, "ws://host/", None),
        ({"http_proxy": "http://p:1"}, "ws://host/", "p"),
        ({"http_proxy": "http://p:1"}, "wss://host/", None),
        ({"https_proxy": "http://s:1", "http_proxy": "http://p:1"}, "ws://host/", "s"),
        ({"HTTPS_PROXY": "http://s:1"}, "wss://host/", "s"),
        ({"ws_proxy": "http://w:1", "https_proxy": "http://s:1"}, "ws://host/", "w"),
        ({"all_proxy": "a:1"}, "wss://host/", "a"),
        ({"all_proxy": "http://a:1", "no_proxy": "host"}, "ws://host/", None),
        ({"all_proxy": "http://a:1", "no_proxy": "host:81"}, "ws://host:80/", "a"),
    ],
)
def test_the_environment_names_a_proxy(monkeypatch, environment, url, host):
    for kind in ("ws", "wss", "http", "https", "all", "no"):
        monkeypatch.delenv(f"{kind}_proxy", raising=False)
        monkeypatch.delenv(f"{kind}_proxy".upper(), raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    proxy = proxy_from_environment(parse_url(url))
    assert (proxy and proxy.host) == host
