"""Replays conformance vectors: upstream's, and our own in the same schema (`vectors/README.md`).

A sequence is a script over two real peers in memory; an invalid case feeds raw messages to one acceptor. Time is fake,
so that a deadline in a script costs none, and every wait is bounded besides. What a script does not know how to do is
an error, never a skip.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import gevent
import msgpack
import pytest

from muxws_green import errors
from muxws_green.codecs.json import JsonCodec
from muxws_green.codecs.msgpack import MsgpackCodec
from muxws_green.errors import MuxwsError, StreamReset
from muxws_green.interfaces import ICodec
from muxws_green.protocol.fragments import MAX_FRAME_BYTES
from muxws_green.protocol.frames import Frame, from_mapping
from muxws_green.runtime.options import Options
from muxws_green.runtime.peer import Peer
from muxws_green.runtime.stream import Stream
from muxws_green.testing import FakeClock, established_peer, settle
from muxws_green.transports.memory import MemoryTransport, memory_pair
from tests.shared import shared_dir

OWN = Path(__file__).parent / "vectors"
CODECS: dict[str, ICodec] = {"json": JsonCodec(), "msgpack": MsgpackCodec()}
FIELDS = frozenset(field.name for field in fields(Frame))

#: Real seconds after which a step that waits has failed.
PATIENCE = 10.0


def load(kind: str) -> dict[str, dict[str, Any]]:
    """All vectors of a kind that has one file each, upstream's first, by name."""
    found: dict[str, dict[str, Any]] = {}
    for directory in (shared_dir("conformance", kind), OWN / kind):
        for path in sorted(directory.glob("*.json")):
            vector = json.loads(path.read_text("utf-8"))
            assert vector["name"] == path.stem, f"{path} calls itself {vector['name']}"
            assert path.stem not in found, f"two vectors are called {path.stem}"
            found[path.stem] = _with_bytes(vector)
    return found


def _with_bytes(value: Any) -> Any:
    """`{"$bytes": [...]}` stands for bytes, wherever it stands."""
    if isinstance(value, dict):
        if value.keys() == {"$bytes"}:
            return bytes(value["$bytes"])
        return {key: _with_bytes(item) for key, item in value.items()}
    return [_with_bytes(item) for item in value] if isinstance(value, list) else value


def same(left: Any, right: Any) -> bool:
    """Equality as it is on the wire: 1 is not true, and bytes are not text."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and bool(left == right)


def matches(frame: Frame, expected: dict[str, Any]) -> bool:
    """Whether a frame has these values in these fields, and whatever it likes in the others."""
    return all(same(getattr(frame, name), value) for name, value in expected.items())


def encode_as_written(codec: ICodec, envelope: dict[str, Any]) -> str | bytes:
    """An envelope's message with exactly its fields, unknown ones and nulls included."""
    if codec.binary:
        packed: bytes = msgpack.packb(envelope)
        return packed
    return json.dumps(envelope, separators=(",", ":"), ensure_ascii=False)


@contextmanager
def bounded(what: str) -> Iterator[None]:
    """Fail, by name, instead of hanging."""
    with gevent.Timeout(PATIENCE, AssertionError(f"{what} did not come to an end")):
        yield


class Error(Exception):
    """What the handlers of the scripts raise: its name is part of the vectors."""


@dataclass
class Outcome:
    """A call in flight, and how it ended."""

    greenlet: gevent.Greenlet[..., None]
    value: Any = None
    error: MuxwsError | None = None

    def get(self) -> Any:
        self.greenlet.join()
        if self.error is not None:
            raise self.error
        return self.value


def in_flight(call: Callable[[], Any]) -> Outcome:
    """Start a call without waiting for it."""

    def run() -> None:
        try:
            outcome.value = call()
        except MuxwsError as error:
            outcome.error = error

    outcome = Outcome(gevent.Greenlet(run))
    outcome.greenlet.start()
    return outcome


class End:
    """One peer of a script, and everything that steps ask about it."""

    def __init__(self, transport: MemoryTransport, options: Options, *, dialer: bool) -> None:
        self.transport = transport
        self.codec = options.codec
        self.cursor = 0
        self.closing: Outcome | None = None
        self._handles: dict[int, Stream] = {}
        self.peer = established_peer(transport, options, dialer=dialer)
        self.peer.on_stream(self._handle)

    def _handle(self, payload: Any, stream: Stream) -> None:
        self._handles[stream.id] = stream
        if isinstance(payload, dict) and payload.get("handler") == "raise":
            raise Error(payload["message"])
        # The script speaks for it.
        stream.closed.wait()

    def keep(self, stream: Stream) -> int:
        self._handles[stream.id] = stream
        return stream.id

    def stream(self, stream_id: int) -> Stream:
        """This end's handle, of a stream that has closed too."""
        return self._handles.get(stream_id) or self.peer.streams[stream_id]

    def frames(self) -> list[Frame]:
        """What has left so far, decoded."""
        return [self.codec.decode(as_received(self.codec, message)) for message in self.transport.sent]


def as_received(codec: ICodec, message: bytes) -> str | bytes:
    """A sent message as the other end gets it."""
    return message if codec.binary else message.decode()


class Sequence:
    """One replay of a script.

    Args:
        vector: The script.
        codec_name: The codec of both ends.
        swapped: Whether the end that the script calls the dialer is the acceptor.
    """

    def __init__(self, vector: dict[str, Any], codec_name: str, *, swapped: bool) -> None:
        self._steps: list[dict[str, Any]] = vector["steps"]
        self._codec = CODECS[codec_name]
        self._ids: list[int] = []
        self._labels: dict[str, Stream | Outcome] = {}
        self._started: list[Outcome] = []
        self._clock = FakeClock()
        options = Options(
            self._codec,
            clock=self._clock,
            max_frame_bytes=vector.get("max_frame_bytes", MAX_FRAME_BYTES),
            max_concurrent_streams=vector.get("max_concurrent_streams", 100),
        )
        left, right = memory_pair()
        dialer, acceptor = End(left, options, dialer=True), End(right, options, dialer=False)
        self.ends = {"dialer": acceptor, "acceptor": dialer} if swapped else {"dialer": dialer, "acceptor": acceptor}
        self._cap = options.max_frame_bytes

    def run(self) -> None:
        """Take every step; then see that the death of the connection leaves nothing that waits."""
        with self._clock:
            try:
                for number, step in enumerate(self._steps, 1):
                    try:
                        with bounded("the step"):
                            self._step(step)
                    except BaseException as error:
                        error.add_note(f"step {number}: {json.dumps(step, default=repr)}")
                        error.add_note("\n".join(self._wire()))
                        raise
                self._check_wire()
            finally:
                self.ends["dialer"].transport.drop()
                with bounded("what the script had started"):
                    gevent.joinall([outcome.greenlet for outcome in self._started])
                    settle()

    def _wire(self) -> Iterator[str]:
        for name, end in self.ends.items():
            for frame in end.frames():
                yield f"{name} sent {frame}"

    def _check_wire(self) -> None:
        """What holds for every message of ours, whatever the script is about."""
        for end in self.ends.values():
            for message in end.transport.sent:
                assert len(message) <= self._cap
                envelope = json.loads(message) if not self._codec.binary else msgpack.unpackb(message)
                assert envelope.keys() <= FIELDS
                assert envelope.get("code") != errors.ResetCode.CONNECTION_CLOSED

    def _step(self, step: dict[str, Any]) -> None:
        kinds = [kind for kind in KINDS if kind in step]
        assert len(kinds) == 1, f"a step of one kind was expected, not {kinds} of {sorted(step)}"
        KINDS[kinds[0]](self, step)

    def _end(self, step: dict[str, Any]) -> End:
        return self.ends[step["peer"]]

    def _resolved(self, envelope: dict[str, Any]) -> dict[str, Any]:
        """Ordinals in place of `stream_ref` and `last_stream_ref`."""
        names = {"stream_ref": "stream", "last_stream_ref": "last_stream"}
        return {
            names.get(name, name): self._ids[value - 1] if name in names else value for name, value in envelope.items()
        }

    def _settle(self, _step: dict[str, Any]) -> None:
        settle(self._clock)

    def _inject(self, step: dict[str, Any]) -> None:
        self._end(step).transport.inject(encode_as_written(self._codec, self._resolved(step["inject"])))

    def _expect_frame(self, step: dict[str, Any]) -> None:
        end, expected = self._end(step), self._matcher(step["expect_frame"])
        for number, frame in enumerate(end.frames()[end.cursor :], end.cursor + 1):
            if matches(frame, expected):
                end.cursor = number
                return
        raise AssertionError(f"no frame matches {expected} from the cursor on, which is at {end.cursor}")

    def _expect_no_frame(self, step: dict[str, Any]) -> None:
        expected = self._matcher(step["expect_no_frame"])
        found = [frame for frame in self._end(step).frames() if matches(frame, expected)]
        assert not found

    def _matcher(self, expected: dict[str, Any]) -> dict[str, Any]:
        raw = {"stream", "last_stream"} & expected.keys()
        assert not raw, f"{raw}: a script names streams by their ordinal"
        return self._resolved(expected)

    def _expect_result(self, step: dict[str, Any]) -> None:
        expected = step["expect_result"]
        assert same(self._awaited(expected["ref"]), expected["value"])

    def _expect_error(self, step: dict[str, Any]) -> None:
        expected = step["expect_error"]
        with pytest.raises(_error_class(expected["error"])) as caught:
            self._awaited(expected["ref"])
        error = caught.value
        if "code" in expected:
            assert isinstance(error, StreamReset)
            assert error.code == expected["code"]
        if "payload" in expected:
            assert isinstance(error, errors.RemoteError)
            assert same(error.payload, expected["payload"])

    def _awaited(self, label: str) -> Any:
        awaited = self._labels[label]
        return awaited.get() if isinstance(awaited, Outcome) else awaited.result()

    def _expect_headers(self, step: dict[str, Any]) -> None:
        expected = step["expect_headers"]
        stream = self._end(expected).stream(self._ids[expected["stream_ref"] - 1])
        if expected["of"] == "reply":
            stream.reply_headers_arrived.wait()
            assert same(stream.reply_headers, expected["value"])
        else:
            assert expected["of"] == "open"
            assert same(stream.headers, expected["value"])

    def _expect_closed(self, step: dict[str, Any]) -> None:
        expected = step["expect_closed"]
        end = self._end(expected)
        gevent.wait([end.peer])
        assert not end.peer.is_open
        if expected.get("socket"):
            assert end.transport.outgoing.ended

    def _call(self, step: dict[str, Any]) -> None:
        call = _CALLS[step["call"]]
        if "raises" in step:
            with pytest.raises(_error_class(step["raises"])):
                call(self, step)
            return
        bound = call(self, step)
        if isinstance(bound, Outcome):
            self._started.append(bound)
        if "as" in step:
            assert bound is not None
            self._labels[step["as"]] = bound

    def _target(self, step: dict[str, Any]) -> Stream:
        return self._end(step).stream(self._ids[step["stream_ref"] - 1])

    def _opened_by(self, end: End, opening: Callable[[], Any]) -> Any:
        """The ordinal for the stream that a call opens without handing it out."""
        before = end.peer.streams
        result = opening()
        while not (opened := end.peer.streams.keys() - before.keys()):
            gevent.sleep(0)
        (stream,) = (end.peer.streams[stream_id] for stream_id in opened)
        assert stream.local
        self._ids.append(end.keep(stream))
        return result

    def _open(self, step: dict[str, Any]) -> Stream:
        end = self._end(step)
        stream = end.peer.open(**_arguments(step, "payload", "headers", "end"))
        self._ids.append(end.keep(stream))
        return stream

    def _request(self, step: dict[str, Any]) -> Any:
        end, arguments = self._end(step), _arguments(step, "payload", "headers")
        if "timeout_ms" in step:
            arguments["timeout"] = step["timeout_ms"] / 1000
        return self._opened_by(end, lambda: in_flight(lambda: end.peer.request(**arguments)))

    def _notify(self, step: dict[str, Any]) -> None:
        end = self._end(step)
        self._opened_by(end, lambda: end.peer.notify(**_arguments(step, "payload", "headers")))

    def _send(self, step: dict[str, Any]) -> None:
        self._target(step).send(step.get("payload"), **_arguments(step, "end", "headers"))

    def _send_headers(self, step: dict[str, Any]) -> None:
        self._target(step).send_headers(step["headers"])

    def _end_side(self, step: dict[str, Any]) -> None:
        self._target(step).end(**_arguments(step, "payload", "trailers", "headers"))

    def _reply(self, step: dict[str, Any]) -> None:
        self._target(step).reply(step.get("payload"), **_arguments(step, "trailers", "headers"))

    def _cancel(self, step: dict[str, Any]) -> None:
        self._target(step).cancel(**_arguments(step, "reason"))

    def _iterate(self, step: dict[str, Any]) -> Outcome:
        stream = self._target(step)
        return in_flight(lambda: list(stream))

    def _close(self, step: dict[str, Any]) -> Outcome:
        end, arguments = self._end(step), _arguments(step, "code", "reason")
        if "drain_ms" in step:
            arguments["drain"] = step["drain_ms"] / 1000
        end.closing = in_flight(lambda: end.peer.close(**arguments))
        return end.closing

    def _await_close(self, step: dict[str, Any]) -> None:
        closing = self._end(step).closing
        assert closing is not None
        closing.get()


def _arguments(step: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: step[name] for name in names if name in step}


def _error_class(name: str) -> type[MuxwsError]:
    kind = getattr(errors, name)
    assert issubclass(kind, MuxwsError)
    return kind


KINDS: dict[str, Callable[[Sequence, dict[str, Any]], None]] = {
    "settle": Sequence._settle,
    "call": Sequence._call,
    "inject": Sequence._inject,
    "expect_frame": Sequence._expect_frame,
    "expect_no_frame": Sequence._expect_no_frame,
    "expect_result": Sequence._expect_result,
    "expect_headers": Sequence._expect_headers,
    "expect_error": Sequence._expect_error,
    "expect_closed": Sequence._expect_closed,
}

_CALLS: dict[str, Callable[[Sequence, dict[str, Any]], Any]] = {
    "open": Sequence._open,
    "request": Sequence._request,
    "notify": Sequence._notify,
    "send": Sequence._send,
    "send_headers": Sequence._send_headers,
    "end": Sequence._end_side,
    "reply": Sequence._reply,
    "cancel": Sequence._cancel,
    "iterate": Sequence._iterate,
    "close": Sequence._close,
    "await_close": Sequence._await_close,
}


class Lone:
    """One peer with nobody at the other end of its line; everything that it gets is injected."""

    def __init__(
        self,
        codec_name: str,
        clock: FakeClock,
        *,
        dialer: bool = False,
        capacity_bytes: int | None = None,
        **options: Any,
    ) -> None:
        #: The other end must live, or the line would end. Nobody reads there unless a test does.
        self.nobody, self.transport = memory_pair(capacity_bytes=capacity_bytes)
        self.codec = CODECS[codec_name]
        self.end = End(self.transport, Options(self.codec, clock=clock, **options), dialer=dialer)

    @property
    def peer(self) -> Peer:
        return self.end.peer

    def inject(self, entry: dict[str, Any]) -> None:
        """Deliver one entry of `inbound`, and let everything happen that comes of it."""
        if "type" in entry:
            message = self.codec.encode(from_mapping(entry))
        else:
            assert entry.keys() == {"raw"}
            message = entry["raw"]
        self.transport.inject(message)
        settle()


def run_invalid(vector: dict[str, Any], codec_name: str) -> None:
    """Replay one invalid case."""
    options = {name: vector[name] for name in ("max_frame_bytes", "max_concurrent_streams") if name in vector}
    with FakeClock() as clock:
        lone = Lone(codec_name, clock, **options)
        for entry in vector["inbound"]:
            lone.inject(entry)
        sent = lone.end.frames()
        note = f"{vector['description']}\nsent: {sent}"
        assert lone.peer.is_open is vector["connection_survives"], note
        if not vector["expect_out"]:
            assert sent == [], note
        rest = iter(sent)
        for expected in vector["expect_out"]:
            assert any(matches(frame, expected) for frame in rest), f"nothing matches {expected}\n{note}"
        complaints = [frame for frame in sent if frame.type in ("reset", "goaway")]
        assert len(complaints) == len(vector["expect_out"]), note
        if vector["connection_survives"]:
            lone.transport.drop()
        else:
            assert lone.transport.closed_with is not None
            assert lone.transport.closed_with[0] == 1002
        with bounded("the connection"):
            gevent.wait([lone.peer])
            settle()
