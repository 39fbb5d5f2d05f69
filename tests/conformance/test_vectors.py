"""All sequence and invalid vectors, upstream's and our own.

Those of frames and of fragment boundaries are in `tests/differential` and `tests/protocol`.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.runner import CODECS, FIELDS, KINDS, Sequence, load, run_invalid
from tests.shared import shared_dir

SEQUENCES = load("sequences")
INVALID = load("invalid")


def meant(vectors: dict[str, dict[str, Any]]) -> list[tuple[str, str]]:
    """Each vector under each codec, but for those that require another: the one reason to leave one out."""
    found = []
    for name, vector in vectors.items():
        wanted = vector.get("requires_codec")
        assert wanted in {None, *CODECS}, f"no run is configured with the codec {wanted}"
        found += [(name, codec_name) for codec_name in CODECS if wanted in (None, codec_name)]
    return found


@pytest.mark.leaks
@pytest.mark.parametrize("roles", ["as written", "swapped"])
@pytest.mark.parametrize("name,codec_name", meant(SEQUENCES))
def test_sequence(name: str, codec_name: str, roles: str) -> None:
    Sequence(SEQUENCES[name], codec_name, swapped=roles == "swapped").run()


@pytest.mark.leaks
@pytest.mark.parametrize("name,codec_name", meant(INVALID))
def test_invalid(name: str, codec_name: str) -> None:
    run_invalid(INVALID[name], codec_name)


def test_everything_of_upstream_runs() -> None:
    def upstream(kind: str) -> set[str]:
        return {path.stem for path in shared_dir("conformance", kind).glob("*")}

    run = {*meant(SEQUENCES), *meant(INVALID)}
    everything = {(name, codec) for kind in ("sequences", "invalid") for name in upstream(kind) for codec in CODECS}
    assert everything - run == {("bytes-payload-under-binary-codec", "json")}
    assert len(upstream("sequences")) == 14
    assert len(upstream("invalid")) == 9


@pytest.mark.parametrize("name", INVALID)
def test_the_schema_of_invalid_cases(name: str) -> None:
    vector = INVALID[name]
    required = {"name", "description", "inbound", "expect_out", "connection_survives"}
    allowed = required | {"max_frame_bytes", "max_concurrent_streams", "requires_codec"}
    assert required <= vector.keys() <= allowed
    assert vector["description"]
    assert vector["inbound"]
    for entry in vector["inbound"]:
        assert entry.keys() == {"raw"} or ("type" in entry and entry.keys() <= FIELDS)
    answers = vector["expect_out"]
    assert all(frame["type"] in ("reset", "goaway") and type(frame["code"]) is int for frame in answers)
    assert vector["connection_survives"] is not any(frame["type"] == "goaway" for frame in answers)


@pytest.mark.parametrize("name", SEQUENCES)
def test_the_schema_of_sequences(name: str) -> None:
    vector = SEQUENCES[name]
    allowed = {"name", "description", "max_frame_bytes", "max_concurrent_streams", "requires_codec", "steps"}
    assert {"name", "steps"} <= vector.keys() <= allowed
    checks = [step for step in vector["steps"] if any(key.startswith("expect_") for key in step)]
    assert checks, "a script that expects nothing cannot fail"
    for step in vector["steps"]:
        assert len(step.keys() & KINDS.keys()) == 1, step
