"""`python -m tests.fuzz`: look for failures for as long as one likes, and keep what led somewhere new."""

from __future__ import annotations

import argparse
import random
import traceback

from tests.fuzz.fuzzer import run, save
from tests.fuzz.targets import TARGETS


def main() -> int:
    """Parse the command line and run. Returns 1 where something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", help=f"which of {', '.join(TARGETS)} (default: all)")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each target (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=None, help="to repeat a run (default: another each time)")
    options = parser.parse_args()
    found = 0
    for target in options.targets or TARGETS:
        seed = random.randrange(2**32) if options.seed is None else options.seed
        outcome = run(target, seed, seconds=options.seconds)
        print(f"{target}: seed {seed}, {outcome.runs} runs, {len(outcome.new)} kept, {len(outcome.failures)} failures")
        save(target, outcome.new)
        save(target, [data for data, _ in outcome.failures], "failed-")
        for data, error in outcome.failures[:3]:
            print(repr(data))
            traceback.print_exception(error)
        found += len(outcome.failures)
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
