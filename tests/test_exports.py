"""The public names are frozen: one more, or one less, is a decision and not an accident (DESIGN §2)."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import muxws_green
from muxws_green import errors

#: Those of the reference, so that code moves between the two, the error tree, and ours besides.
REFERENCE = """
connect accept serve Peer Stream StreamState Reconnect PeerRegistry CloseReason SameOrigin Frame ABSENT MAX_FRAME_BYTES
Codec JsonCodec get_codec register_codec registered_codecs settings Settings ResetCode backoff_delay unjittered_delay
should_retry default_error_serializer split_frame from_mapping to_mapping parse_origin
"""
ERRORS = """
MuxwsError ProtocolError ConnectionClosed HeartbeatTimeoutError NotConnectedError ConnectionGoingAway
StreamAlreadyConsumed StreamClosed UpgradeRefused OriginRefused HandshakeRefused TransportUrlError
TransportUnsupportedError CodecError CodecNotRegistered CodecMismatch StreamReset RemoteError StreamTimeout
StreamRefused ConnectionLost
"""
OURS = "IdleHeartbeat CountingHeartbeat WSGIApp upgradable Server drain_all HandlerStopped __version__"

PUBLIC = sorted({*REFERENCE.split(), *ERRORS.split(), *OURS.split()})


def test_the_public_names_are_these():
    assert sorted(muxws_green.__all__) == PUBLIC
    assert len(set(muxws_green.__all__)) == len(muxws_green.__all__)


@pytest.mark.parametrize("name", PUBLIC)
def test_each_is_there_and_described(name):
    value = getattr(muxws_green, name)
    if inspect.isclass(value) or inspect.isroutine(value):
        assert (inspect.getdoc(value) or "").strip()


def test_a_star_import_brings_them_and_nothing_else():
    names: dict[str, object] = {}
    exec("from muxws_green import *", names)
    del names["__builtins__"]
    assert sorted(names) == PUBLIC


def test_the_error_tree_is_complete():
    tree = {
        "ProtocolError": "MuxwsError",
        "ConnectionClosed": "MuxwsError",
        "HeartbeatTimeoutError": "ConnectionClosed",
        "NotConnectedError": "MuxwsError",
        "ConnectionGoingAway": "MuxwsError",
        "StreamAlreadyConsumed": "MuxwsError",
        "StreamClosed": "MuxwsError",
        "UpgradeRefused": "MuxwsError",
        "OriginRefused": "UpgradeRefused",
        "HandshakeRefused": "MuxwsError",
        "TransportUrlError": "MuxwsError",
        "TransportUnsupportedError": "MuxwsError",
        "CodecError": "MuxwsError",
        "CodecNotRegistered": "CodecError",
        "CodecMismatch": "CodecError",
        "StreamReset": "MuxwsError",
        "RemoteError": "StreamReset",
        "StreamTimeout": "StreamReset",
        "StreamRefused": "StreamReset",
        "ConnectionLost": "StreamReset",
    }
    found = {
        name: value.__mro__[1].__name__
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, errors.MuxwsError) and value is not errors.MuxwsError
    }
    assert found == tree
    assert sorted({"MuxwsError", *found}) == sorted(ERRORS.split())
    assert issubclass(errors.HandshakeRefused, OSError)
    assert issubclass(errors.TransportUrlError, ValueError)
    assert issubclass(errors.TransportUnsupportedError, RuntimeError)


def test_the_further_codec_is_in_its_own_module():
    from muxws_green.codecs import MsgpackCodec

    assert MsgpackCodec().name == "msgpack"
    assert "msgpack" not in muxws_green.registered_codecs()


@pytest.mark.slow
@pytest.mark.case("C24")
def test_importing_patches_opens_and_starts_nothing():
    script = """
import sys, threading, os
before = set(os.listdir("/proc/self/fd"))
import muxws_green, muxws_green.messaging
import gevent, gevent.monkey
names = ("socket", "ssl", "thread", "threading", "time", "os", "select", "signal", "subprocess", "queue")
assert not [name for name in names if gevent.monkey.is_module_patched(name)]
assert threading.active_count() == 1, threading.enumerate()
assert set(os.listdir("/proc/self/fd")) == before, set(os.listdir("/proc/self/fd")) ^ before
assert gevent._hub_local.get_hub_if_exists() is None
import logging
assert not logging.getLogger().handlers
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stderr == result.stdout == ""
