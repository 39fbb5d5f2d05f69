"""Dialers that are told the same share what that means, for as long as one of them is there."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import gevent
import pytest
import trustme

from muxws_green.api.dialing import _CONNECT_DEFAULTS, _dialer_peer, _plans
from muxws_green.codecs.json import JsonCodec
from muxws_green.protocol.backoff import Reconnect
from muxws_green.protocol.liveness import IdleHeartbeat
from muxws_green.runtime.options import Options
from muxws_green.runtime.peer import Peer

JSON = JsonCodec()


class _Codec(JsonCodec):
    """One that can be referred to weakly."""


def dialer(codec: JsonCodec, **options: Any) -> Peer:
    """A peer that does not dial yet."""
    return _dialer_peer("raise", {"url": "ws://host.example/", **_CONNECT_DEFAULTS, "codec": codec, **options})


def test_dialers_with_the_same_codec_and_no_options_share_their_settings():
    codec = JsonCodec()
    first = dialer(codec)
    assert first._options == Options(codec, heartbeat=IdleHeartbeat(20.0, 10.0))
    assert dialer(codec, reconnect=Reconnect(), hello={}, open_timeout=1.0)._options is first._options
    assert dialer(JsonCodec())._options.codec is not codec


@pytest.mark.parametrize(
    "name, value",
    [
        ("heartbeat", None),
        ("ping_interval", 7.0),
        ("ping_timeout", 7.0),
        ("max_payload_bytes", 7),
        ("max_concurrent_streams", 7),
        ("max_frame_bytes", 7000),
        ("send_buffer_bytes", 7),
        ("receive_buffer_bytes", 7),
        ("receive_pause_timeout", 7.0),
        ("error_serializer", repr),
    ],
)
def test_an_option_is_that_of_one_dialer(name, value):
    codec = JsonCodec()
    before = dialer(codec)
    assert dialer(codec, **{name: value})._options != before._options
    assert dialer(codec)._options is before._options


def test_what_is_wrong_is_found_however_often_the_codec_was_used():
    codec = JsonCodec()
    kept = dialer(codec)
    with pytest.raises(ValueError, match="max_concurrent_streams"):
        # No int, but equal to one that is the default.
        dialer(codec, max_concurrent_streams=100.0)
    with pytest.raises(ValueError, match="ping_timeout"):
        dialer(codec, ping_timeout=0)
    with pytest.raises(TypeError, match="clock"):
        dialer(codec, clock=None)
    codec.name = None
    with pytest.raises(TypeError, match="name"):
        dialer(codec)
    assert kept._options.codec is codec


def test_a_codec_goes_with_the_last_of_its_dialers():
    codec = _Codec()
    peers = [dialer(codec), dialer(codec)]
    options, gone = weakref.ref(peers[0]._options), weakref.ref(codec)
    del codec
    while peers:
        assert options() is not None
        peers.pop()._abandon()
        gevent.idle()
        gc.collect()
    assert options() is None
    assert gone() is None


def test_dialers_that_were_told_the_same_share_their_plan():
    codec = JsonCodec()
    first, second = dialer(codec), dialer(codec, on_stream=print)
    assert first.supervisor._plan is second.supervisor._plan
    for other in (
        dialer(JsonCodec()),
        dialer(codec, url="ws://host.example/other"),
        dialer(codec, open_timeout=1.0),
        dialer(codec, headers={"A": "b"}),
        dialer(codec, hello=1),
        dialer(codec, reconnect=Reconnect()),
    ):
        assert other.supervisor._plan is not first.supervisor._plan


def test_a_plan_goes_with_the_last_of_its_dialers():
    codec, url = JsonCodec(), "ws://host.example/"
    first, second = dialer(codec, url=url), dialer(codec, url=url)
    gone = weakref.ref(first.supervisor._plan)
    assert (url, id(codec)) in _plans
    del first
    gc.collect()
    assert gone() is second.supervisor._plan
    del second
    gc.collect()
    assert gone() is None
    assert (url, id(codec)) not in _plans


@pytest.mark.parametrize(
    "url",
    [
        # The authorities that are trusted may be others when the next one is made.
        "wss://host.example/",
        "WSS://host.example/",
        "ws://name:password@host.example/",
        "ws://host.example/?token=secret",
    ],
)
def test_what_may_change_or_is_secret_is_not_shared(url):
    codec = JsonCodec()
    first, second = dialer(codec, url=url), dialer(codec, url=url)
    assert first.supervisor._plan is not second.supervisor._plan
    assert not any(url == known for known, _ in _plans)


def test_each_dialer_trusts_whom_the_system_trusts_now(monkeypatch, tmp_path):
    authority, url = trustme.CA(), "wss://host.example/"
    nobody, somebody = tmp_path / "nobody.pem", tmp_path / "somebody.pem"
    nobody.touch()
    authority.cert_pem.write_to_path(str(somebody))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path / "nowhere"))
    monkeypatch.setenv("SSL_CERT_FILE", str(nobody))
    before = dialer(JSON, url=url)
    monkeypatch.setenv("SSL_CERT_FILE", str(somebody))
    after = dialer(JSON, url=url)
    trusted = [len(each.supervisor._plan.dialer._ssl_context.get_ca_certs()) for each in (before, after)]
    assert trusted == [0, 1]


@pytest.mark.parametrize("url", [None, 7, b"ws://host.example/", ["ws://host.example/"]])
def test_a_url_is_a_str(url):
    with pytest.raises(TypeError):
        dialer(JsonCodec(), url=url)
