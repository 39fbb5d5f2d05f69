"""What a server answers a request for an upgrade; also live against the client side of `websockets`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.client import ClientProtocol
from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory
from websockets.protocol import OPEN
from websockets.uri import parse_uri

from muxws_green.websocket import UpgradeAnswer, answer_upgrade, answer_usual_upgrade

Header = tuple[str, str]

#: The example of RFC 6455 §1.3.
KEY = "dGhlIHNhbXBsZSBub25jZQ=="
ACCEPT = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="

GOOD: list[Header] = [
    ("Host", "server.example.com"),
    ("Upgrade", "websocket"),
    ("Connection", "Upgrade"),
    ("Sec-WebSocket-Key", KEY),
    ("Sec-WebSocket-Protocol", "muxws.v1.json"),
    ("Sec-WebSocket-Version", "13"),
    ("Origin", "http://example.com"),
]


def with_(name: str, *values: str) -> list[Header]:
    """The good request with other lines for one name, or with none."""
    kept = [header for header in GOOD if header[0] != name]
    return kept + [(name, value) for value in values]


def answer(headers: list[Header], method: str = "GET", http_version: str = "HTTP/1.1") -> UpgradeAnswer:
    made = answer_upgrade(method, "/chat", headers, lambda offered: offered[0] if offered else None, http_version)
    if made.status != 101:
        assert 400 <= made.status < 500
        fields = dict(made.headers)
        assert fields["Content-Length"] == str(len(made.body))
        assert fields["Content-Type"].startswith("text/plain")
        assert fields["Connection"] == "close"
        assert made.body.decode().strip()
        assert made.reason
    return made


def test_the_example_of_the_rfc():
    assert answer(GOOD) == (
        101,
        "Switching Protocols",
        [
            ("Upgrade", "websocket"),
            ("Connection", "Upgrade"),
            ("Sec-WebSocket-Accept", ACCEPT),
            ("Sec-WebSocket-Protocol", "muxws.v1.json"),
        ],
        b"",
    )


def test_names_of_headers_in_any_case():
    assert answer([(name.upper(), value) for name, value in GOOD]).status == 101
    assert answer([(name.lower(), value) for name, value in GOOD]).status == 101


@pytest.mark.case("C04")
@pytest.mark.parametrize(
    "lines, status",
    [
        (["Upgrade"], 101),
        (["upgrade"], 101),
        (["keep-alive, Upgrade"], 101),
        (["Upgrade , Keep-Alive"], 101),
        (["KEEP-ALIVE,UPGRADE"], 101),
        ([",, upgrade,"], 101),
        (["keep-alive", "Upgrade"], 101),
        (["no-upgrade"], 426),
        (["upgrades"], 426),
        (["keep-alive, x-upgrade"], 426),
        (["keep-alive"], 426),
        ([], 426),
        (["Upgrade; q=1"], 400),
        ([""], 400),
    ],
)
def test_connection_is_a_list_of_tokens(lines, status):
    assert answer(with_("Connection", *lines)).status == status


@pytest.mark.parametrize(
    "lines, status",
    [
        (["WebSocket"], 101),
        (["WEBSOCKET"], 101),
        ([], 426),
        (["h2c"], 426),
        (["websocket/13"], 426),
        (["notwebsocket"], 426),
        (["websocket", "websocket"], 426),
        (["websocket, h2c"], 426),
        (["web socket"], 400),
    ],
)
def test_upgrade_is_websocket_and_nothing_else(lines, status):
    made = answer(with_("Upgrade", *lines))
    assert made.status == status
    if status == 426:
        assert ("Upgrade", "websocket") in made.headers


@pytest.mark.case("C26")
@pytest.mark.parametrize(
    "lines",
    [
        [],
        [""],
        ["!!!"],
        ["AAAAAAAAAAAAAAAAAAAA"],
        ["dGhlIHNhbXBsZSBub25j"],
        ["dGhlIHNhbXBsZSBub25jZSE="],
        ["dGhlIHNhbXBsZSBub25jZQ"],
        ["dGhlIHNhbXBsZ=SBub25jZQ="],
        ["schlüssel"],
        ["\u0430" * 24],
        [KEY, KEY],
        [f"{KEY},{KEY}"],
        [f"{KEY}\x00"],
        [f"{KEY}\r\nX: y"],
    ],
)
def test_a_bad_key_is_400(lines):
    assert answer(with_("Sec-WebSocket-Key", *lines)).status == 400


@pytest.mark.case("C26")
@pytest.mark.parametrize("version", ["12", "8", "0", "14", "013", "x"])
def test_another_version_is_426_and_names_ours(version):
    made = answer(with_("Sec-WebSocket-Version", version))
    assert made.status == 426
    assert ("Sec-WebSocket-Version", "13") in made.headers


@pytest.mark.parametrize("lines", [[], ["13", "13"], ["13", "8"]])
def test_no_version_or_several_is_400(lines):
    assert answer(with_("Sec-WebSocket-Version", *lines)).status == 400


@pytest.mark.case("C26")
@pytest.mark.parametrize("method", ["POST", "HEAD", "OPTIONS", "PUT", "get", ""])
def test_another_method_is_405(method):
    made = answer(GOOD, method)
    assert made.status == 405
    assert ("Allow", "GET") in made.headers


@pytest.mark.case("C26")
@pytest.mark.parametrize("http_version", ["HTTP/1.0", "HTTP/0.9", "HTTP/2.0", ""])
def test_another_version_of_http_is_400(http_version):
    assert answer(GOOD, http_version=http_version).status == 400


@pytest.mark.parametrize("lines", [[], [""], ["a.example", "b.example"], ["a.example", "a.example"], ["a,b"]])
def test_one_host_is_needed(lines):
    assert answer(with_("Host", *lines)).status == 400


@pytest.mark.parametrize("header", [("Content-Length", "5"), ("Content-Length", ""), ("Transfer-Encoding", "chunked")])
def test_a_body_is_refused(header):
    assert answer([*GOOD, header]).status == 400


def test_an_empty_body_is_none():
    assert answer([*GOOD, ("Content-Length", "0")]).status == 101


def test_what_is_not_part_of_the_handshake_is_not_judged():
    extra = [
        ("Cookie", "a=\x01\u20ac"),
        ("Origin", "http://second.example"),
        ("Sec-WebSocket-Extensions", "]not;;an extension["),
        ("X y z", ""),
    ]
    assert answer([*GOOD, *extra]).status == 101


def test_an_extension_is_never_accepted():
    made = answer([*GOOD, ("Sec-WebSocket-Extensions", "permessage-deflate; client_max_window_bits")])
    assert made.status == 101
    assert "sec-websocket-extensions" not in {name.lower() for name, _ in made.headers}


# The subprotocol.


def test_select_sees_all_offers_in_their_order():
    seen: list[list[str]] = []

    def select(offered: list[str]) -> str | None:
        seen.append(offered)
        return "bearer.abc"

    made = answer_upgrade(
        "GET", "/", with_("Sec-WebSocket-Protocol", "muxws.v1.json , bearer.abc", "muxws.v2.json", "c"), select
    )
    assert seen == [["muxws.v1.json", "bearer.abc", "muxws.v2.json", "c"]]
    assert ("Sec-WebSocket-Protocol", "bearer.abc") in made.headers


def test_select_may_refuse():
    made = answer_upgrade("GET", "/", with_("Sec-WebSocket-Protocol", "secret.token"), lambda offered: None)
    assert made.status == 400
    assert b"secret" not in made.body


def test_select_is_asked_when_nothing_is_offered():
    seen: list[list[str]] = []
    made = answer_upgrade("GET", "/", with_("Sec-WebSocket-Protocol"), seen.append)
    assert seen == [[]]
    assert made.status == 400


@pytest.mark.parametrize("line", ["", "a b", "a;b", '"a"', "a,,;", "ä"])
def test_a_malformed_offer_is_400_without_asking(line):
    def select(offered: list[str]) -> str | None:
        pytest.fail("asked")

    assert answer_upgrade("GET", "/", with_("Sec-WebSocket-Protocol", line), select).status == 400


def test_select_is_not_asked_for_a_bad_request():
    def select(offered: list[str]) -> str | None:
        pytest.fail("asked")

    assert answer_upgrade("GET", "/", with_("Sec-WebSocket-Key", "!!!"), select).status == 400


def test_selecting_something_else_is_a_mistake_of_the_caller():
    with pytest.raises(ValueError, match="offered"):
        answer_upgrade("GET", "/", GOOD, lambda offered: "muxws.v1.JSON")


def test_what_select_raises_comes_out():
    def select(offered: list[str]) -> str | None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        answer_upgrade("GET", "/", GOOD, select)


# Anything.


def test_no_answer_quotes_the_request():
    marker = "marker"
    for name in ("Connection", "Upgrade", "Sec-WebSocket-Key", "Sec-WebSocket-Version", "Host"):
        for value in (marker, f"{marker} {marker}", f"{marker},{marker}"):
            made = answer(with_(name, value))
            assert marker not in repr(made) or (name == "Host" and made.status == 101)


@given(
    st.sampled_from(["GET", "GET", "GET", "POST"]),
    st.lists(
        st.tuples(
            st.sampled_from([name for name, _ in GOOD] + ["Sec-WebSocket-Extensions", "Content-Length"]),
            st.one_of(st.text(max_size=30), st.sampled_from([value for _, value in GOOD])),
        ),
        max_size=12,
    ),
    st.booleans(),
)
def test_nothing_that_a_client_sends_raises(method, headers, on_top):
    made = answer([*GOOD, *headers] if on_top else headers, method)
    assert made.status in {101, 400, 405, 426}


def test_the_client_of_the_library_is_content():
    client = ClientProtocol(
        parse_uri("ws://localhost:8000/path?query"),
        subprotocols=["muxws.v1.json", "bearer.abc"],
        extensions=[ClientPerMessageDeflateFactory()],
    )
    request = client.connect()
    client.send_request(request)
    made = answer(list(request.headers.raw_items()))
    head = f"HTTP/1.1 {made.status} {made.reason}\r\n" + "".join(f"{name}: {value}\r\n" for name, value in made.headers)
    client.receive_data(head.encode() + b"\r\n")
    assert client.handshake_exc is None
    assert client.state is OPEN
    assert client.subprotocol == "muxws.v1.json"
    assert client.extensions == []


#: Values of each handshake header as clients, broken clients and attackers write them; None: no such line.
ODD = {
    "Upgrade": ["websocket", "WebSocket", "websoc\N{KELVIN SIGN}et", "websocket, x", "websocket/13", "h2c", "", None],
    "Connection": [
        "Upgrade",
        "keep-alive, Upgrade",
        "Upgrade;q=1",
        ",Upgrade",
        "Upgrade,",
        "close",
        "a b, upgrade",
        None,
    ],
    "Sec-WebSocket-Key": [KEY, KEY[:-2], KEY[:-1] + "A", "x" * 22 + "==", "a" * 24, "é" * 22 + "==", None],
    "Sec-WebSocket-Version": ["13", "13, 8", "8", "013", "", None],
    "Sec-WebSocket-Protocol": ["muxws.v1.json", "a, b ,c", "a,,b", "a;b", '"a"', "", ",", "é", None],
}


def at_first_sight(values: Mapping[str, str | None], select: Callable[[list[str]], str | None]) -> UpgradeAnswer | None:
    return answer_usual_upgrade(
        upgrade=values["Upgrade"] or "",
        connection=values["Connection"] or "",
        version=values["Sec-WebSocket-Version"] or "",
        key=values["Sec-WebSocket-Key"] or "",
        protocols=values["Sec-WebSocket-Protocol"] or "",
        select=select,
    )


@pytest.mark.parametrize("name", list(ODD))
def test_blanks_around_a_value_mean_nothing(name):
    values = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Protocol": "muxws.v1.json",
    }
    values[name] = f" \t{values[name]} "
    lines = [("Host", "x"), *values.items()]
    assert answer_upgrade("GET", "/chat", lines, lambda offered: offered[0]).status == 101


@given(st.fixed_dictionaries({name: st.sampled_from(values) for name, values in ODD.items()}), st.booleans())
def test_what_is_answered_at_first_sight_is_what_the_library_finds(values, agrees):
    seen: dict[str, list[str]] = {}

    def select(offered: list[str], judge: str) -> str | None:
        seen[judge] = list(offered)
        return offered[-1] if agrees and offered else None

    lines = [("Host", "x"), *((name, value) for name, value in values.items() if value is not None)]
    at_length = answer_upgrade("GET", "/chat", lines, lambda offered: select(offered, "at length"))
    quick = at_first_sight(values, lambda offered: select(offered, "at first sight"))
    if quick is None:
        assert "at first sight" not in seen
    else:
        assert quick == at_length
        assert seen["at first sight"] == seen["at length"]


@pytest.mark.parametrize(
    "usual",
    [
        {},
        {"Upgrade": "WebSocket", "Connection": "keep-alive, Upgrade"},
        {"Connection": "UPGRADE", "Sec-WebSocket-Protocol": "bearer.abc,muxws.v1.json \t, c"},
    ],
)
def test_what_clients_send_is_answered_at_first_sight(usual):
    made = at_first_sight({**dict(GOOD), **usual}, lambda offered: offered[0])
    assert made is not None
    assert made == answer([*GOOD[:1], *({**dict(GOOD[1:]), **usual}).items()])


@pytest.mark.parametrize(
    "unusual",
    [
        {"Upgrade": "h2c"},
        {"Upgrade": "websoc\N{KELVIN SIGN}et"},
        {"Connection": "close"},
        {"Connection": "a b, upgrade"},
        {"Sec-WebSocket-Key": "!!!"},
        {"Sec-WebSocket-Version": "8"},
        {"Sec-WebSocket-Protocol": ""},
        {"Sec-WebSocket-Protocol": "a,,b"},
    ],
)
def test_whatever_is_odd_is_left_to_the_library_and_select_is_not_asked(unusual):
    def select(offered: list[str]) -> str | None:
        pytest.fail("asked")

    assert at_first_sight({**dict(GOOD), **unusual}, select) is None


def test_at_first_sight_too_selecting_something_else_is_a_mistake_of_the_caller():
    with pytest.raises(ValueError, match="offered"):
        at_first_sight(dict(GOOD), lambda offered: "muxws.v1.JSON")
