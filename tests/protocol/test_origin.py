"""Origins: what parses, who is allowed, and that more than one is nobody (PROTOCOL §11)."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from muxws.origin import parse_origin as reference_parse_origin
from zope.interface.verify import verifyObject

from muxws_green.interfaces import IOriginPolicy
from muxws_green.protocol.origin import SameOrigin, compile_policy, parse_authority, parse_origin

PAGE = "https://app.example"


@pytest.mark.parametrize(
    "value,parsed",
    [
        ("http://example.com", ("http", "example.com", 80)),
        ("https://example.com", ("https", "example.com", 443)),
        ("HTTPS://Example.COM/", ("https", "example.com", 443)),
        ("  http://example.com:8080\t", ("http", "example.com", 8080)),
        ("http://example.com:080", ("http", "example.com", 80)),
        ("http://127.0.0.1:65535", ("http", "127.0.0.1", 65535)),
        ("http://my_host.internal", ("http", "my_host.internal", 80)),
        ("https://[2001:DB8::1]:8443", ("https", "[2001:db8::1]", 8443)),
        ("http://[::1]", ("http", "[::1]", 80)),
    ],
)
def test_an_origin_is_scheme_host_and_port(value, parsed):
    assert parse_origin(value) == parsed
    assert reference_parse_origin(value) == parsed


@pytest.mark.parametrize(
    "value",
    [
        "",
        "null",
        "example.com",
        "//example.com",
        "http:",
        "http://",
        "http:///",
        "http://example.com//",
        "http://example.com/path",
        "http://example.com?q",
        "http://example.com#f",
        "http://user@example.com",
        "http://user:pass@example.com",
        "http://exam ple.com",
        "http://example.com\x00",
        "http://example.com\\@evil.example",
        "http://%65xample.com",
        "http://example.com:",
        "http://example.com:http",
        "http://example.com:+80",
        "http://example.com:-1",
        "http://example.com:65536",
        "http://example.com:" + "9" * 5000,
        "http://example.com:\u0664\u0664",
        "http://example.com:80:80",
        "http://:80",
        "http://[::1",
        "http://[]",
        "http://[:::]",
        "http://[::1]x",
        "http://::1",
        "http://\u212aelvin.example",
        "http://b\u00fccher.example",
        "http://a.example,http://b.example",
        "http://a.example, http://b.example",
        "ws://example.com",
        "file://",
        "chrome-extension://abcdef",
    ],
)
def test_anything_else_is_none(value):
    assert parse_origin(value) is None


@given(
    st.text(alphabet="htps:/.[]@?#,\\ a1Z%-_", max_size=24).map(lambda text: f"http://{text}") | st.text(max_size=24)
)
def test_what_parses_parses_alike_in_the_reference_and_in_the_standard_library(value):
    parsed = parse_origin(value)
    if parsed is not None:
        assert reference_parse_origin(value) == parsed
        parts = urlsplit(value.strip())
        scheme, host, port = parsed
        assert parts.scheme == scheme
        assert parts.hostname == host.strip("[]")
        assert (parts.port if parts.port is not None else {"http": 80, "https": 443}[scheme]) == port


@pytest.mark.parametrize(
    "value,parsed",
    [
        ("example.com", ("example.com", None)),
        ("Example.com:8080", ("example.com", 8080)),
        ("[::1]:80", ("[::1]", 80)),
        ("", None),
        ("a.example,b.example", None),
        ("a.example, b.example", None),
        ("http://a.example", None),
        ("a.example/", None),
        ("user@a.example", None),
    ],
)
def test_a_host_header(value, parsed):
    assert parse_authority(value) == parsed


def allowed(policy, origin, host="app.example", forwarded_host=None):
    return compile_policy(policy).allows(origin, host, forwarded_host)


@pytest.mark.parametrize(
    "origin,expected",
    [
        ("https://app.example", True),
        ("https://APP.example:443/", True),
        ("http://app.example", False),
        ("https://app.example:8443", False),
        ("https://app.example.evil.example", False),
        ("https://evil.example", False),
        ("null", False),
        ("", False),
        (None, False),
        ("https://app.example, https://app.example", False),
        ("https://app.example,https://evil.example", False),
    ],
)
def test_a_list_allows_exactly_its_origins(origin, expected):
    assert allowed([PAGE], origin) is expected


def test_a_list_may_be_any_iterable_and_may_be_empty():
    assert allowed(iter([PAGE]), PAGE)
    assert not allowed((), PAGE)


@pytest.mark.parametrize(
    "origin,host,expected",
    [
        ("https://app.example", "app.example", True),
        ("http://app.example", "app.example", True),
        ("https://app.example", "APP.example:443", True),
        ("https://app.example:443", "app.example", True),
        ("http://app.example", "app.example:80", True),
        ("http://app.example", "app.example:443", False),
        ("https://app.example", "app.example:8000", False),
        ("http://127.0.0.1:8000", "127.0.0.1:8000", True),
        ("http://127.0.0.1:8000.evil.example", "127.0.0.1:8000", False),
        ("http://127.0.0.1.evil.example:8000", "127.0.0.1:8000", False),
        ("http://localhost:8000", "127.0.0.1:8000", False),
        ("http://[::1]:8000", "[::1]:8000", True),
        ("https://app.example", " app.example ", True),
        ("https://app.example", None, False),
        ("https://app.example", "", False),
        ("https://app.example", "app.example,app.example", False),
        ("https://app.example", "app.example/", False),
        (None, "app.example", False),
        ("null", "app.example", False),
        ("https://app.example,https://app.example", "app.example", False),
    ],
)
def test_same_origin_compares_host_and_port_and_not_the_scheme(origin, host, expected):
    assert allowed(SameOrigin(), origin, host) is expected


def test_same_origin_takes_others_too():
    policy = SameOrigin(also=["https://admin.example"])
    assert allowed(policy, "https://admin.example", "app.example")
    assert allowed(policy, "https://admin.example", None)
    assert not allowed(policy, "http://admin.example", "app.example")
    assert allowed(policy, "https://app.example", "app.example")


@pytest.mark.parametrize(
    "forwarded,expected",
    [
        ("app.example", True),
        ("APP.example:443", True),
        ("app.example, inner.example", True),
        ("inner.example, app.example", False),
        ("evil.example", False),
        ("", False),
        (None, False),
    ],
)
def test_a_trusted_forwarded_host_takes_the_place_of_host(forwarded, expected):
    policy = SameOrigin(trust_forwarded_host=True)
    assert allowed(policy, PAGE, "upstream:8000", forwarded) is expected


def test_a_forwarded_host_counts_only_where_it_is_trusted():
    assert not allowed(SameOrigin(), PAGE, "upstream:8000", "app.example")
    assert allowed(SameOrigin(), PAGE, "app.example", "evil.example")
    assert allowed(SameOrigin(trust_forwarded_host=True), PAGE, "app.example", None)


def test_a_callable_sees_the_single_value_as_it_stands():
    asked = []

    def decide(origin):
        asked.append(origin)
        return origin in (None, "null", "app://x")

    for value in (None, "null", "app://x", " https://evil.example"):
        assert allowed(decide, value) is (value in (None, "null", "app://x"))
    assert asked == [None, "null", "app://x", " https://evil.example"]


@pytest.mark.parametrize("value", ["https://a.example, https://b.example", "https://a.example,https://a.example", ","])
def test_a_callable_is_not_asked_about_more_than_one(value):
    def decide(origin):
        raise AssertionError(f"asked about {origin!r}")

    assert allowed(decide, value) is False


def test_a_policy_of_the_applications_own_is_asked_about_single_values_only():
    class Own:
        def allows(self, origin, host, forwarded_host):
            return (origin, host, forwarded_host) == (PAGE, "h", "f")

    assert allowed(Own(), PAGE, "h", "f")
    assert not allowed(Own(), PAGE, "h", None)
    assert not allowed(Own(), f"{PAGE},{PAGE}", "h", "f")


def test_what_a_callable_raises_comes_out():
    def decide(origin):
        raise LookupError(origin)

    with pytest.raises(LookupError):
        allowed(decide, PAGE)


def test_nothing_is_checked_without_a_policy_and_compiling_twice_is_compiling_once():
    assert compile_policy(None) is None
    compiled = compile_policy([PAGE])
    assert compile_policy(compiled) is compiled


@pytest.mark.parametrize(
    "entry", ["example.com", "null", "*", "https://a.example/path", "ws://a.example", 1, b"http://a"]
)
def test_a_list_with_something_else_in_it_is_refused_at_once(entry):
    with pytest.raises(ValueError, match="not an origin"):
        compile_policy(["https://ok.example", entry])
    with pytest.raises(ValueError, match="not an origin"):
        SameOrigin(also=[entry])


@pytest.mark.parametrize("wrong", ["https://a.example", b"https://a.example", 5])
def test_a_single_string_is_not_a_list(wrong):
    with pytest.raises(TypeError):
        compile_policy(wrong)
    with pytest.raises(TypeError):
        SameOrigin(also=wrong)


def test_policies_keep_their_contract():
    assert verifyObject(IOriginPolicy, SameOrigin())
    assert verifyObject(IOriginPolicy, compile_policy([PAGE]))
    assert repr(SameOrigin(also=[PAGE])) == "SameOrigin(also=['https://app.example:443'], trust_forwarded_host=False)"
