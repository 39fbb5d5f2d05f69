"""Sound inputs that the first mutations are made of."""

from __future__ import annotations

from collections.abc import Iterable

from muxws_green.codecs.json import JsonCodec
from muxws_green.codecs.msgpack import MsgpackCodec
from muxws_green.interfaces import ICodec
from muxws_green.protocol.frames import Frame
from muxws_green.websocket import encode_close, encode_messages, encode_ping, encode_pong

_FRAMES = [
    Frame("open", stream=1, payload="answer", headers={"a": 1}),
    Frame("open", stream=3, payload="stop"),
    Frame("open", stream=5, fragment='"ab', more=True),
    Frame("open", stream=5, fragment='c"', end=True),
    Frame("data", stream=1, payload=[1, 2.5, None, {"x": "é"}]),
    Frame("data", stream=2, payload="reply", headers={"h": "v"}),
    Frame("data", stream=1, fragment="[1,", more=True),
    Frame("data", stream=1, fragment="2]", end=True, trailers={"t": 1}),
    Frame("reset", stream=1, code=1, reason="enough"),
    Frame("reset", stream=2, code=2, payload={"type": "X", "message": "m"}),
    Frame("ping", nonce="abc"),
    Frame("pong", nonce="abc"),
    Frame("goaway", code=0, last_stream=2, reason="bye"),
    Frame("settings"),
]


def _messages(codec: ICodec, parity: int) -> list[bytes]:
    made = []
    for frame in _FRAMES:
        stream = None if frame.stream is None else frame.stream + parity
        fragment = frame.fragment.encode() if codec.binary and isinstance(frame.fragment, str) else frame.fragment
        fields = {name: getattr(frame, name) for name in Frame.__slots__}
        message = codec.encode(Frame(**{**fields, "stream": stream, "fragment": fragment}))
        made.append(message.encode() if isinstance(message, str) else message)
    return made


def _streams(masked: bool) -> Iterable[bytes]:
    text = encode_messages([b"hello", "é€😀".encode(), b"x" * 130], False, masked)
    yield text
    yield encode_messages([b"\x00\xff" * 100], True, masked) + encode_ping(b"p", masked) + text
    yield encode_pong(b"", masked) + encode_close(1000, "bye", masked)
    yield encode_close(None, "", masked)
    first = bytearray(encode_messages([b"part"], False, masked))
    first[0] &= 0x7F
    last = bytearray(encode_messages([b"end"], False, masked))
    last[0] = 0x80
    yield bytes(first) + encode_ping(b"", masked) + bytes(last)


def seeds(target: str) -> list[bytes]:
    """The seeds of one target."""
    json, msgpack = _messages(JsonCodec(), 0), _messages(MsgpackCodec(), 1)
    return {
        "server_bytes": list(_streams(True)),
        "client_bytes": list(_streams(False)),
        "json_message": json,
        "msgpack_message": msgpack,
        "json_frames": [b"\n".join(json), b"\n".join(json[::-1]), *json],
        "msgpack_frames": [b"\n".join(msgpack), b"\n".join(msgpack[::-1]), *msgpack],
    }[target]
