"""The mask, fast and slow, and keys that no other process has."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muxws_green.websocket import mask
from tests.websocket.wire import KEY, xor

BOTH = [mask.apply_mask, mask.apply_mask_in_python]


@pytest.mark.parametrize("apply_mask", BOTH)
@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 5, 7, 8, 125, 1023, 1024, 1025, 1026, 1027, 1028, 70001])
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_masking_is_xor(apply_mask, size, kind):
    data = bytes(at * 7 % 256 for at in range(size))
    masked = apply_mask(kind(data), KEY)
    assert type(masked) is bytes
    assert masked == xor(data, KEY)
    assert apply_mask(masked, KEY) == data


@given(st.binary(max_size=3000), st.binary(min_size=4, max_size=4))
def test_fast_and_slow_agree(data, key):
    assert mask.apply_mask(data, key) == mask.apply_mask_in_python(data, key)


@pytest.mark.parametrize("apply_mask", BOTH)
@pytest.mark.parametrize("key", [b"", b"abc", b"abcde"])
def test_a_key_of_another_length_raises(apply_mask, key):
    with pytest.raises(ValueError, match="4"):
        apply_mask(b"data", key)


def test_without_the_compiled_mask_the_other_is_used(monkeypatch):
    monkeypatch.setitem(sys.modules, "websockets.speedups", None)
    assert mask._fastest() is mask.apply_mask_in_python
    monkeypatch.undo()
    assert mask._fastest() is not mask.apply_mask_in_python


def test_keys_are_drawn_again_when_they_are_used_up(monkeypatch):
    drawn = []
    genuine = os.urandom

    def urandom(size: int) -> bytes:
        drawn.append(size)
        return genuine(size)

    monkeypatch.setattr(mask.os, "urandom", urandom)
    monkeypatch.setattr(mask, "_keys", [])
    keys = {mask.fresh_key() for _ in range(2 * mask._DRAWN_AT_ONCE)}
    assert len(keys) > 2 * mask._DRAWN_AT_ONCE - 3
    assert {len(key) for key in keys} == {4}
    assert drawn == [4 * mask._DRAWN_AT_ONCE] * 2


FORK = """
import os, sys
from muxws_green.websocket.mask import fresh_key, _keys
fresh_key()
assert len(_keys) > 100
reading, writing = os.pipe()
child = os.fork()
if child == 0:
    os.write(writing, b"".join(fresh_key() for _ in range(100)))
    os._exit(0)
os.close(writing)
ours = [fresh_key() for _ in range(100)]
with os.fdopen(reading, "rb") as pipe:
    received = pipe.read()
assert os.waitpid(child, 0)[1] == 0
assert len(received) == 400
shared = set(ours) & {received[at:at + 4] for at in range(0, 400, 4)}
assert not shared, len(shared)
print("no key shared")
"""


def test_a_forked_child_shares_no_key_with_its_parent():
    run = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, timeout=30, check=False)
    assert run.stderr == ""
    assert run.stdout == "no key shared\n"
