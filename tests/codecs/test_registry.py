"""Registration is explicit, and a name without a codec is an error that says what to do (PROTOCOL §2, §4)."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from muxws_green.codecs import registry
from muxws_green.codecs.json import JsonCodec
from muxws_green.codecs.msgpack import MsgpackCodec
from muxws_green.codecs.registry import get_codec, register_codec, registered_codecs, resolve_codec
from muxws_green.errors import CodecNotRegistered
from muxws_green.settings import settings
from tests.codecs.samples import PlainText


@pytest.fixture(autouse=True)
def _own_table(monkeypatch):
    monkeypatch.setattr(registry, "_codecs", dict(registry._codecs))
    monkeypatch.setattr(settings, "codec", "json")


def test_json_is_there_from_the_start_and_nothing_else():
    code = (
        "import muxws_green.codecs, muxws_green.codecs.msgpack, muxws_green.codecs.json\n"
        "from muxws_green.codecs import registered_codecs\n"
        "print(registered_codecs())"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, timeout=30, check=True)
    assert found.stdout.decode().strip() == "['json']"
    assert isinstance(get_codec("json"), JsonCodec)


def test_register_and_replace():
    first, second = MsgpackCodec(), MsgpackCodec()
    register_codec("msgpack", first)
    assert get_codec("msgpack") is first
    assert registered_codecs() == ["json", "msgpack"]
    register_codec("msgpack", second)
    assert get_codec("msgpack") is second


def test_a_codec_needs_no_declaration():
    codec = PlainText()
    register_codec("plain", codec)
    assert resolve_codec("plain") is codec


@pytest.mark.parametrize("name", ["", "a b", "a,b", "a/b", 'a"b', "a\n", "é", "a;b"])
def test_names_that_cannot_stand_in_a_header(name):
    codec = PlainText()
    codec.name = name
    with pytest.raises(ValueError, match="header"):
        register_codec(name, codec)
    assert name not in registered_codecs()


def test_a_name_that_is_not_the_codecs_own():
    with pytest.raises(ValueError, match=r"'json'.*'fast'"):
        register_codec("fast", JsonCodec())


def without(member):
    codec = PlainText()
    setattr(codec, member, None)
    return codec


@pytest.mark.parametrize("member", ["name", "binary", "encode", "decode", "encode_payload", "decode_payload"])
def test_what_is_missing_is_named(member):
    with pytest.raises(TypeError, match=rf"lacks {member}\b"):
        register_codec("plain", without(member))
    with pytest.raises(TypeError, match=rf"lacks {member}\b"):
        resolve_codec(without(member))


def test_binary_is_a_bool():
    codec = PlainText()
    codec.binary = 1
    with pytest.raises(TypeError, match="binary"):
        register_codec("plain", codec)


@pytest.mark.parametrize("thing", [None, 5, object(), b"json"])
def test_something_that_is_no_codec(thing):
    with pytest.raises(TypeError, match="no codec"):
        register_codec("json", thing)


def test_a_class_is_not_its_instance():
    with pytest.raises(TypeError, match=r"JsonCodec\(\)"):
        register_codec("json", JsonCodec)


@pytest.mark.parametrize("ask", [lambda: get_codec("cbor"), lambda: resolve_codec("cbor")])
def test_an_unknown_name_says_what_to_do(ask):
    with pytest.raises(CodecNotRegistered) as caught:
        ask()
    error = caught.value
    assert (error.configured, error.available) == ("cbor", ["json"])
    for part in ("MUXWS_CODEC", "'cbor'", "json", "register_codec"):
        assert part in str(error)


def test_none_means_the_configured_one():
    assert resolve_codec() is get_codec("json")
    settings.codec = "cbor"
    with pytest.raises(CodecNotRegistered, match="MUXWS_CODEC='cbor'"):
        resolve_codec(None)
    assert resolve_codec("json") is get_codec("json")


def test_an_object_is_taken_as_it_is():
    codec = MsgpackCodec()
    assert resolve_codec(codec) is codec
