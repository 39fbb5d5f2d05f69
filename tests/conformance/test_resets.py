"""What a reset from the wire becomes: the exact class, which a script's `expect_error` does not ask about."""

from __future__ import annotations

from typing import Any

import pytest

from muxws_green.errors import RemoteError, ResetCode, StreamRefused, StreamReset, StreamTimeout
from muxws_green.protocol.frames import Frame
from muxws_green.testing import FakeClock, settle
from tests.conformance.runner import CODECS, Lone

CLASSES: dict[int | None, tuple[type[StreamReset], ResetCode | int]] = {
    None: (StreamReset, ResetCode.NO_ERROR),
    0: (StreamReset, ResetCode.NO_ERROR),
    1: (StreamReset, ResetCode.CANCELLED),
    2: (RemoteError, ResetCode.APPLICATION_ERROR),
    3: (StreamReset, ResetCode.PROTOCOL_ERROR),
    4: (StreamRefused, ResetCode.REFUSED),
    5: (StreamReset, 5),
    6: (StreamTimeout, ResetCode.TIMEOUT),
    7: (StreamReset, ResetCode.PAYLOAD_TOO_LARGE),
    8: (StreamReset, ResetCode.INTERNAL_ERROR),
    # A remote cannot make a live connection look lost.
    9: (StreamReset, ResetCode.CONNECTION_CLOSED),
    10: (StreamReset, 10),
    -1: (StreamReset, -1),
    2**40: (StreamReset, 2**40),
}


@pytest.mark.leaks
@pytest.mark.parametrize("codec_name", CODECS)
@pytest.mark.parametrize("code", CLASSES)
def test_the_class_of_a_reset(code: int | None, codec_name: str) -> None:
    expected, expected_code = CLASSES[code]
    with FakeClock() as clock:
        lone = Lone(codec_name, clock, dialer=True)
        stream = lone.peer.open(1)
        settle()
        fields: dict[str, Any] = {"code": code, "reason": "so", "payload": {"why": 1}}
        lone.transport.inject(lone.codec.encode(Frame("reset", stream=1, **fields)))
        with pytest.raises(StreamReset) as caught:
            stream.result()
        error = caught.value
        assert type(error) is expected
        assert error.code == expected_code
        assert type(error.code) is type(expected_code)
        assert (error.reason, error.stream_id) == ("so", 1)
        assert not isinstance(error, RemoteError) or error.payload == {"why": 1}
        assert lone.peer.is_open
        lone.transport.drop()
        settle()
