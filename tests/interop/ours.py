"""Our peer at work: the same deeds as the reference's in `reference.py`, and a record of every frame that passes."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import gevent
from gevent.event import Event

from muxws_green import Reconnect, WSGIApp, connect
from muxws_green.codecs import MsgpackCodec
from muxws_green.errors import RemoteError, StreamReset
from muxws_green.protocol.fragments import MAX_FRAME_BYTES
from muxws_green.protocol.frames import Frame
from muxws_green.runtime.closing import CloseReason
from muxws_green.runtime.handlers import HandlerStopped
from muxws_green.runtime.peer import Peer
from muxws_green.runtime.stream import Stream
from muxws_green.transports.server import Server
from tests.interop.matter import MAX_STREAMS, SOCKET_BYTES, UNDER_WAY, blob, digest
from tests.interop.process import PATIENCE, Reference, reference_client, reference_server


@dataclass(frozen=True)
class Seen:
    """One frame that passed our end, sent ("tx") or received ("rx")."""

    direction: str
    frame: Frame
    size: int


class Worker:
    """Our peer, what its handler does, and what tests have it do."""

    def __init__(self, codec_name: str) -> None:
        self.codec: Any = MsgpackCodec() if codec_name == "msgpack" else codec_name
        self.binary = codec_name == "msgpack"
        self.peer: Any = None
        self.arrived = Event()
        self.seen: list[Seen] = []
        self.opened: list[Any] = []
        self.stopped: list[str] = []
        self.closes: list[CloseReason] = []
        self._gates: dict[str, Event] = {}

    def take(self, peer: Peer) -> None:
        """Look after a peer, from its first frame on."""
        self.peer = peer
        peer.on_frame(lambda direction, frame, size: self.seen.append(Seen(direction, frame, size)))
        peer.on_close(self.closes.append)
        self.narrow()
        self.arrived.set()

    def narrow(self) -> None:
        sock = self.peer._link.transport._sock
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            sock.setsockopt(socket.SOL_SOCKET, option, SOCKET_BYTES)

    def gate(self, name: str) -> Event:
        return self._gates.setdefault(name, Event())

    # What it does for the other side

    def act(self, payload: Any, stream: Stream) -> None:
        """The `on_stream` handler."""
        do = payload["do"]
        self.opened.append({"do": do, "headers": stream.headers})
        try:
            getattr(self, f"_act_{do}")(payload, stream)
        except (HandlerStopped, StreamReset):
            # Whichever comes first: where it waits for an item, the reset of the stream does.
            self.stopped.append(do)
            raise

    def _act_hello(self, payload: Any, stream: Stream) -> None:
        pass

    def _act_echo(self, payload: Any, stream: Stream) -> None:
        stream.reply(payload, headers={"echo": payload["n"]}, trailers={"n": payload["n"]})

    def _act_rows(self, payload: Any, stream: Stream) -> None:
        stream.send_headers({"kind": "rows"})
        for row in range(payload["count"]):
            stream.send({"row": row})
        stream.end(trailers={"rows": payload["count"]})

    def _act_ticks(self, payload: Any, stream: Stream) -> None:
        for item in stream:
            stream.send({"tick": item})

    def _act_fail(self, payload: Any, stream: Stream) -> None:
        for row in range(payload["rows"]):
            stream.send({"row": row})
        raise LookupError(payload["message"])

    def _act_fetch(self, payload: Any, stream: Stream) -> None:
        stream.reply(blob(payload["size"], binary=self.binary))

    def _act_upload(self, payload: Any, stream: Stream) -> None:
        stream.reply(digest(payload["blob"]))

    def _act_gate(self, payload: Any, stream: Stream) -> None:
        self.gate(payload["name"]).wait()
        stream.reply({"passed": payload["name"]})

    # What it is told to do

    def many(self, count: int) -> list[Any]:
        def one(n: int) -> Any:
            return self.peer.request({"do": "echo", "n": n}, headers={"n": n})

        return together(*((one, n) for n in range(count)))

    def rows(self, count: int) -> dict[str, Any]:
        stream = self.peer.open({"do": "rows", "count": count}, end=True)
        rows = [item["row"] for item in stream]
        return {"rows": rows, "reply_headers": stream.reply_headers, "trailers": stream.trailers}

    def ticks(self, count: int) -> list[Any]:
        stream = self.peer.open({"do": "ticks"})
        seen: list[Any] = []
        while len(seen) < count:
            stream.send(len(seen))
            seen.append(stream.receive()["tick"])
        stream.cancel("seen enough")
        return seen

    def fail(self, rows: int, message: str) -> dict[str, Any]:
        stream = self.peer.open({"do": "fail", "rows": rows, "message": message}, end=True)
        seen: list[Any] = []
        try:
            seen.extend(item["row"] for item in stream)
        except RemoteError as error:
            return {"rows": seen, "code": int(error.code), "reason": error.reason, "payload": error.payload}
        raise AssertionError("it ended as if complete")

    def overtake(self, what: str, size: int, count: int) -> dict[str, Any]:
        """Move a big payload, and make small calls once that is under way."""
        small: list[Stream] = []

        def start_small() -> None:
            small.extend(self.peer.open({"do": "echo", "n": n}, end=True, wait=False) for n in range(count))

        self.once_under_way("tx" if what == "upload" else "rx", start_small)
        answer = self.peer.request(self.order(what, size))
        answers = [stream.result()["n"] for stream in small]
        return {"answers": answers, "digest": digest(answer) if what == "fetch" else answer}

    def order(self, what: str, size: int) -> dict[str, Any]:
        if what == "fetch":
            return {"do": "fetch", "size": size}
        return {"do": "upload", "blob": blob(size, binary=self.binary)}

    def once_under_way(self, direction: str, action: Any) -> None:
        """Do something, right in the hook, at a later fragment of what begins after this call."""
        fragments = 0

        def watch(passing: str, frame: Frame, _size: int) -> None:
            nonlocal fragments
            if frame.fragment is not None and passing == direction:
                fragments += 1
                if fragments == UNDER_WAY:
                    action()

        self.peer.on_frame(watch)

    # What has passed

    def frames(self, direction: str, kind: str | None = None) -> list[Frame]:
        return [seen.frame for seen in self.seen if seen.direction == direction and kind in (None, seen.frame.type)]

    def check_wire(self) -> None:
        """What holds for whatever has been done: sizes, ids, fragments, the ends of streams."""
        assert all(seen.size <= MAX_FRAME_BYTES for seen in self.seen)
        for direction in ("tx", "rx"):
            dialer = self.peer.is_dialer is (direction == "tx")
            frames = self.frames(direction)
            ids = list(dict.fromkeys(frame.stream for frame in frames if frame.type == "open"))
            assert ids == list(range(1 if dialer else 2, 2 * len(ids) + 1, 2))
            check_streams(frames, late_allowed=direction == "rx")


def check_streams(frames: list[Frame], *, late_allowed: bool) -> None:
    """In one direction: fragments of a payload are of one type and in one run, and nothing follows the last frame."""
    begun: set[Any] = set()
    collecting: dict[Any, str] = {}
    ended: set[Any] = set()
    gone: set[Any] = set()
    for frame in frames:
        if frame.stream is None:
            assert frame.type in ("ping", "pong", "goaway")
            continue
        assert frame.stream not in gone
        if frame.type == "reset":
            assert frame.fragment is None
            gone.add(frame.stream)
            continue
        assert frame.stream not in ended
        assert frame.headers is None or frame.stream not in begun
        begun.add(frame.stream)
        if frame.stream in collecting:
            assert frame.fragment is not None
            assert frame.type == collecting[frame.stream]
        if frame.more:
            assert not frame.end
            assert frame.trailers is None
            collecting[frame.stream] = frame.type
        else:
            collecting.pop(frame.stream, None)
        if frame.end:
            ended.add(frame.stream)
    assert late_allowed or collecting.keys() <= gone


def resets(frames: list[Frame]) -> Counter[tuple[int | None, str | None]]:
    return Counter((frame.code, frame.reason) for frame in frames if frame.type == "reset")


def together(*calls: tuple[Any, ...]) -> list[Any]:
    """Call them all at once and return what they return; bounded."""
    greenlets = [gevent.spawn(*call) for call in calls]
    with gevent.Timeout(PATIENCE, AssertionError("not everything came to its end")):
        return [greenlet.get() for greenlet in greenlets]


@dataclass
class Conversation:
    """Our peer and the reference's, connected."""

    ours: Worker
    reference: Reference


@contextmanager
def ours_dials(codec_name: str, **options: Any) -> Iterator[Conversation]:
    """Our dialer, the reference's acceptor."""
    worker = Worker(codec_name)
    with reference_server(codec_name) as (reference, port):
        peer = dial(worker, port, **options)
        reference.do("settle")
        try:
            yield Conversation(worker, reference)
        finally:
            peer.close(drain=0.0)


def dial(worker: Worker, port: int, **options: Any) -> Peer:
    with gevent.Timeout(PATIENCE, AssertionError("the dial did not end")):
        peer = connect(
            f"ws://127.0.0.1:{port}/",
            codec=worker.codec,
            on_stream=worker.act,
            max_concurrent_streams=MAX_STREAMS,
            reconnect=Reconnect(max_attempts=0),
            **options,
        )
    worker.take(peer)
    return peer


@contextmanager
def ours_serves(worker: Worker) -> Iterator[str]:
    """Our server for one peer, and its URL."""
    app = WSGIApp(worker.act, codec=worker.codec, max_concurrent_streams=MAX_STREAMS, on_connect=worker.take)
    server = Server(("127.0.0.1", 0), app, log=None)
    server.start()
    try:
        yield f"ws://127.0.0.1:{server.server_port}/"
    finally:
        server.drain(0.0)


@contextmanager
def reference_dials(codec_name: str, **options: Any) -> Iterator[Conversation]:
    """Our acceptor, the reference's dialer."""
    worker = Worker(codec_name)
    with ours_serves(worker) as url, reference_client(codec_name) as reference:
        reference.do("dial", url=url, **options)
        yield Conversation(worker, reference)


ROLES = {"ours dials": ours_dials, "reference dials": reference_dials}
