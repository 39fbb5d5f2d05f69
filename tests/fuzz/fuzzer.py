"""Runs a target on mutations of its corpus, and keeps what led somewhere new."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.fuzz.mutation import mutate
from tests.fuzz.seeds import seeds
from tests.fuzz.targets import TARGETS

CORPUS = Path(__file__).parent / "corpus"
#: Beyond so many inputs of one target, more are found but not kept.
MAX_KEPT = 80


@dataclass
class Outcome:
    """What a run came to."""

    runs: int = 0
    new: list[bytes] = field(default_factory=list)
    failures: list[tuple[bytes, Exception]] = field(default_factory=list)


def corpus(target: str) -> list[bytes]:
    """The kept inputs of a target, in a stable order."""
    return [path.read_bytes() for path in sorted((CORPUS / target).glob("*")) if path.is_file()]


def run(target: str, seed: int, *, runs: int | None = None, seconds: float | None = None) -> Outcome:
    """Replay the seeds and the corpus, then mutate for `runs` inputs or `seconds`; stops at the tenth failure."""
    check = TARGETS[target]
    random = Random(seed)
    pool = seeds(target) + corpus(target)
    seen: set[str] = set()
    outcome = Outcome()

    def one(data: bytes, keep: bool) -> None:
        outcome.runs += 1
        try:
            text = check(data)
        except Exception as error:  # whatever the target does not expect is what is looked for
            outcome.failures.append((data, error))
            return
        if text not in seen:
            seen.add(text)
            if keep and len(pool) < MAX_KEPT:
                pool.append(data)
                outcome.new.append(data)

    for data in list(pool):
        one(data, False)
    began = time.monotonic()
    while len(outcome.failures) < 10:
        if runs is not None and outcome.runs >= runs:
            break
        if seconds is not None and time.monotonic() - began > seconds:
            break
        one(mutate(random.choice(pool), pool, random), True)
    return outcome


def save(target: str, inputs: list[bytes], prefix: str = "") -> None:
    """Add inputs to the corpus."""
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    for data in inputs:
        (folder / f"{prefix}{hashlib.sha256(data).hexdigest()[:16]}").write_bytes(data)
