"""The errors of calls, made of those of streams."""

from __future__ import annotations

import pytest

from muxws_green import ConnectionClosed, ConnectionLost
from muxws_green.messaging.errors import as_callers_see_it


def test_a_loss_is_told_with_what_ended_the_connection() -> None:
    with pytest.raises(ConnectionClosed, match="gone") as raised, as_callers_see_it:
        raise ConnectionLost("gone") from ConnectionClosed(code=4000, reason="so")
    assert (raised.value.code, raised.value.reason) == (4000, "so")


def test_a_loss_of_which_nothing_is_known() -> None:
    with pytest.raises(ConnectionClosed, match="gone") as raised, as_callers_see_it:
        raise ConnectionLost("gone")
    assert (raised.value.code, raised.value.__cause__) == (ConnectionClosed().code, None)
