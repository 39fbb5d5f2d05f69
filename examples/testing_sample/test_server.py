"""Tests of the server's side: in memory, over a real socket, and against clients that do what they should not."""

from __future__ import annotations

import pytest
from exports import TABLES, serve_export

from muxws_green import Frame, RemoteError, StreamReset
from muxws_green.testing import RawClient, settle

# Whatever a test opens has to be gone when it is over.
pytestmark = pytest.mark.usefixtures("no_leaks")


def test_a_table_comes_row_by_row(peer_pair):
    """The handler alone: two peers in memory, and no socket."""
    client, server = peer_pair()
    server.on_stream(serve_export)
    assert list(client.open({"export": "letters"}, end=True)) == ["a", "b", "c"]


def test_an_unknown_table_is_an_error_of_that_stream_alone(peer_pair):
    """What the other end sees of a failure."""
    client, server = peer_pair()
    server.on_stream(serve_export)
    with pytest.raises(StreamReset, match="no such table"):
        client.request({"export": "passwords"})
    with pytest.raises(RemoteError) as caught:
        client.request("nonsense")
    assert caught.value.payload["type"] == "TypeError"
    assert client.is_open


def test_rows_are_not_made_faster_than_they_are_read(peer_pair):
    """A line that holds little, and limits that are small, show whether a handler waits for its reader."""
    client, server = peer_pair(
        acceptor={"send_buffer_bytes": 2000}, dialer={"receive_buffer_bytes": 2000}, capacity_bytes=2000
    )
    sent = []

    @server.on_stream
    def count(payload, stream):
        for row in range(10_000):
            stream.send(row)
            sent.append(row)

    stream = client.open(None, end=True)
    settle()
    assert 0 < len(sent) < 1000
    stream.cancel()


def test_it_speaks_to_clients_that_are_not_ours(muxws_server):
    """A raw client shows what is on the wire, frame by frame."""
    server = muxws_server(serve_export)
    with RawClient(server.url) as client:
        client.send(Frame("open", 1, payload={"export": "letters"}, end=True))
        for row in TABLES["letters"]:
            client.expect("data", stream=1, payload=row)
        client.expect("data", stream=1, end=True)
        # A second stream under the same id breaks the rules.
        client.send(Frame("open", 1, payload={"export": "letters"}))
        client.expect("goaway", code=3)
        client.expect_close(1002)
