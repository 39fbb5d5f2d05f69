"""`PeerRegistry`: who is found by which tags, who leaves by itself, and telling many one thing (PROTOCOL §10)."""

from __future__ import annotations

import gc
import json
import weakref

import gevent
import pytest

from muxws_green import JsonCodec, PeerRegistry
from muxws_green.codecs.msgpack import MsgpackCodec
from muxws_green.runtime.options import Options
from muxws_green.testing import settle
from tests.runtime.ends import Gate, MemoryDialer, dialled, echo, make_ends


@pytest.fixture
def registry():
    return PeerRegistry()


@pytest.fixture
def tagged(make, registry):
    """Makes a registered peer with these tags; the near end of a pair."""

    def tagged(near="acceptor", options=None, **tags):
        made = make(near=near, **(options or {}))
        made.near.tags.update(tags)
        registry.register(made.near)
        return made

    return tagged


def test_a_registry_goes_with_its_last_user(tagged, registry):
    lost = weakref.ref(registry)
    alone = PeerRegistry()
    gone = weakref.ref(alone)
    gc.collect()
    gc.disable()
    try:
        del alone
        assert gone() is None
    finally:
        gc.enable()
    assert lost() is registry


def found(registry, **tags):
    return registry.peers_for(**tags)


@pytest.mark.parametrize("near", ["dialer", "acceptor"])
def test_peers_are_found_by_all_of_the_tags_asked_for(registry, tagged, near):
    first = tagged(near, user=1, room="a").near
    second = tagged(near, user=2, room="a").near
    third = tagged(near, user=1, room="b").near
    assert found(registry, room="a") == [first, second]
    assert found(registry, user=1) == [first, third]
    assert found(registry, user=1, room="b") == [third]
    assert found(registry, user=2, room="b") == []
    assert found(registry, nobody=1) == []
    assert found(registry) == [first, second, third]
    assert len(registry) == 3


def test_the_order_is_that_of_registration(registry, tagged):
    peers = [tagged(room="a", number=number).near for number in range(5)]
    assert found(registry, room="a") == peers
    registry.register(peers[0])
    assert found(registry, room="a") == [*peers[1:], peers[0]]
    assert found(registry) == [*peers[1:], peers[0]]


def test_it_indexes_the_tags_as_they_are_and_does_not_watch_them(registry, tagged):
    peer = tagged(room="a").near
    peer.tags["room"] = "b"
    assert found(registry, room="a") == [peer]
    registry.register(peer)
    assert found(registry, room="a") == []
    assert found(registry, room="b") == [peer]


class Hostile:
    """A tag whose hash can be taken once, and which then changes or raises."""

    def __init__(self, later):
        self.later = later
        self.hashed = 0

    def __hash__(self):
        self.hashed += 1
        if self.hashed > 1:
            if isinstance(self.later, BaseException):
                raise self.later
            return self.later
        return 1

    def __eq__(self, other):
        if isinstance(self.later, BaseException):
            raise self.later
        return self is other


class Unhashable:
    def __init__(self, error):
        self.error = error

    def __hash__(self):
        raise self.error


@pytest.mark.parametrize("value", [[1], {}, {1}, Unhashable(TypeError("no")), Unhashable(ValueError("no"))], ids=str)
def test_a_value_that_cannot_be_hashed_matches_nobody(registry, tagged, value):
    peer = tagged(room="a", odd=value).near
    assert found(registry, odd=value) == []
    assert found(registry, room="a", odd=value) == []
    assert found(registry, room="a") == [peer]


@pytest.mark.parametrize("later", [2, ValueError("no"), TypeError("no")], ids=str)
def test_a_tag_that_changes_its_hash_keeps_nobody_from_leaving(registry, tagged, later):
    made = tagged(room="a", odd=Hostile(later))
    other = tagged(room="a").near
    told = []
    made.near.on_close(told.append)
    made.drop()
    settle()
    assert [reason.code for reason in told] == [1006]
    assert found(registry, room="a") == [other]
    assert len(registry) == 1
    registry.deregister(other)
    assert registry._index == {}


def test_a_tag_that_cannot_be_compared_registers_nobody_by_half(registry, tagged, make):
    first = tagged(room="a", odd=Hostile(ValueError("no"))).near
    second = make(near="acceptor").near
    second.tags.update(room="a", odd=Hostile(ValueError("no")))
    with pytest.raises(ValueError, match="no"):
        registry.register(second)
    assert found(registry, room="a") == [first]
    assert found(registry) == [first]
    # Nor is anything kept of those of its tags that could be.
    second.tags = {"seat": 7, "room": "a", "odd": Hostile(ValueError("no"))}
    with pytest.raises(ValueError, match="no"):
        registry.register(second)
    assert len(registry._index) == 2


@pytest.mark.parametrize("how", ["lost", "closed", "closed by the remote", "deregistered", "with"])
def test_peers_leave_by_themselves(registry, tagged, how):
    made = tagged(room="a")
    if how == "lost":
        made.drop()
    elif how == "closed":
        made.near.close()
    elif how == "closed by the remote":
        made.far.close()
    elif how == "deregistered":
        registry.deregister(made.near)
        registry.deregister(made.near)
    else:
        with registry.registered(made.near) as peer:
            assert found(registry, room="a") == [peer]
    settle()
    assert found(registry, room="a") == []
    assert found(registry) == []
    assert len(registry) == 0
    assert registry._index == {}


def test_a_peer_that_is_not_open_is_not_registered(registry, tagged):
    made = tagged(room="a")
    made.drop()
    settle()
    registry.register(made.near)
    assert len(registry) == 0


def test_a_peer_whose_connection_is_failing_is_not_found(registry, tagged):
    made = tagged(room="a")
    made.far_transport.incoming.stall()
    made.near_transport.inject("{")
    while made.near.is_open:
        gevent.sleep(0)
    assert found(registry, room="a") == []
    assert found(registry) == []


def test_a_dialer_registers_again_when_it_is_back(registry, clock):
    far = MemoryDialer(Options(codec=JsonCodec(), clock=clock))
    peer = dialled(far)
    peer.tags["room"] = "a"
    registry.register(peer)
    peer.on_reconnect(lambda attempt, same: registry.register(same))
    far.dials[0][0].drop()
    settle()
    assert found(registry, room="a") == []
    clock.advance(5.0)
    assert found(registry, room="a") == [peer]
    peer.close()


def test_it_keeps_nobody_alive(registry):
    made = make_ends("acceptor")
    made.near.tags["room"] = "a"
    registry.register(made.near)
    peer = weakref.ref(made.near)
    made.drop()
    settle()
    del made
    gc.collect()
    assert peer() is None


# Telling many


class Counting(JsonCodec):
    def __init__(self):
        self.encoded = []

    def encode_payload(self, value):
        self.encoded.append(value)
        return super().encode_payload(value)


def test_notify_all_encodes_once_for_each_codec(registry, tagged):
    json_codec, msgpack = Counting(), MsgpackCodec()
    pairs = [tagged(options={"codec": json_codec}, room="a") for _ in range(5)]
    pairs += [tagged(options={"codec": msgpack}, room="a") for _ in range(5)]
    pairs += [tagged(options={"codec": json_codec}, room="b")]
    got = []
    for number, made in enumerate(pairs):
        made.far.on_stream(lambda payload, stream, n=number: got.append((n, payload, stream.headers)))
    result = registry.notify_all({"news": 1}, {"h": 1}, room="a")
    assert (result.queued, result.skipped, result.closed) == (10, 0, 0)
    settle()
    assert sorted(got, key=lambda each: each[0]) == [(number, {"news": 1}, {"h": 1}) for number in range(10)]
    assert json_codec.encoded == [{"news": 1}]
    assert registry.notify_all("all").queued == 11
    assert registry.notify_all("nobody", room="c") == type(result)(0, 0, 0)


@pytest.mark.case("C63")
def test_a_peer_that_does_not_read_is_skipped_and_holds_up_nobody(registry, tagged, clock):
    options = {"capacity_bytes": 1, "send_buffer_bytes": 100_000, "clock": clock}
    slow, quick = tagged(options=options, room="a"), tagged(options=options, room="a")
    slow.near_transport.outgoing.stall()
    quick.far.on_stream(echo)
    results = []
    for _ in range(20):
        results.append(registry.notify_all("x" * 20_000, room="a"))
        settle()
    assert clock.now() == 0.0
    assert [result.queued + result.skipped for result in results] == [2] * 20
    assert results[0].skipped == 0
    assert results[-1].skipped == 1
    assert quick.near.stats.streams_opened == 20
    assert slow.near.stats.queued_bytes < 150_000
    assert slow.near.is_open


def test_peers_that_cannot_be_told_are_counted(registry, tagged):
    going, closing, fine = (tagged(room="a") for _ in range(3))
    going.inject(type="goaway", code=0, last_stream=0)
    closing.near._link.core.goaway(0, None)
    settle()
    result = registry.notify_all(1, room="a")
    assert (result.queued, result.skipped, result.closed) == (1, 0, 2)
    assert fine.near.stats.streams_opened == 1


def test_one_whose_interceptor_raises_holds_up_nobody(registry, tagged, caplog):
    bad, fine = tagged(room="a"), tagged(room="a")

    def refuse(headers, payload):
        raise ValueError("not through here")

    bad.near.intercept_open(refuse)
    fine.near.intercept_open(lambda headers, payload: headers.update(to=payload))
    result = registry.notify_all(1, room="a")
    assert (result.queued, result.skipped, result.closed) == (1, 1, 0)
    settle()
    assert json.loads(fine.near_transport.sent[0])["headers"] == {"to": 1}
    assert caplog.text.count("notify_all failed for this peer") == 1


def test_a_payload_that_cannot_be_encoded_is_sent_to_nobody(registry, tagged):
    peers = [tagged(room="a").near for _ in range(3)]
    with pytest.raises((TypeError, ValueError)):
        registry.notify_all(object(), room="a")
    assert [peer.stats.streams_opened for peer in peers] == [0, 0, 0]


def test_headers_that_cannot_be_sent_are_skipped_for_each(registry, tagged):
    tagged(room="a")
    assert registry.notify_all(1, {"bad": object()}, room="a").skipped == 1


def test_answers_to_it_are_discarded(registry, tagged):
    made, gate = tagged(room="a"), Gate()
    made.far.on_stream(lambda payload, stream: stream.reply("x" * 10_000))
    registry.notify_all(1)
    settle()
    assert made.near.stats.held_bytes == 0
    assert not made.near.streams
    assert not gate.entered.is_set()
