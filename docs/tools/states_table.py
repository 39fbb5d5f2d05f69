"""Writes the table of states in docs/streams.md from `muxws_green.protocol.states.TABLE`.

python docs/tools/states_table.py           writes it
python docs/tools/states_table.py --check   fails where it would be another
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Behind what is installed.
sys.path.append(str(ROOT))

from muxws_green.protocol.states import TABLE, Event, StreamState, Verdict  # noqa: E402

PAGE = ROOT / "docs" / "streams.md"
BEGIN = "<!-- states: written by docs/tools/states_table.py -->\n"
END = "<!-- end of states -->\n"

_VERDICTS = {
    Verdict.CONNECTION_ERROR: "connection error",
    Verdict.STREAM_ERROR: "stream error",
    Verdict.IGNORE: "ignored",
    Verdict.RAISE: "raises",
    Verdict.NOTHING: "nothing",
    Verdict.IMPOSSIBLE: "–",
}


def cell(state: StreamState, event: Event) -> str:
    """What the table says of an event in a state."""
    outcome = TABLE[state][event]
    if isinstance(outcome, Verdict):
        return _VERDICTS[outcome]
    return "stays" if outcome is state else f"→ `{outcome.value}`"


def table() -> str:
    """The table as Markdown."""
    lines = [
        "| event | " + " | ".join(f"`{state.value}`" for state in StreamState) + " |",
        "|---" * (len(StreamState) + 1) + "|",
    ]
    lines += [f"| {event.value} | " + " | ".join(cell(state, event) for state in StreamState) + " |" for event in Event]
    return "\n".join(lines) + "\n"


def with_table(page: str) -> str:
    """The page with the table as it is now.

    Raises:
        ValueError: The page has no place for it.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE} lacks one of the lines {BEGIN!r} and {END!r}")
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def main() -> int:
    """Write the page, or compare it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail where the page is stale")
    page = PAGE.read_text(encoding="utf-8")
    fresh = with_table(page)
    if parser.parse_args().check:
        if page != fresh:
            print(f"{PAGE} is stale; run {Path(__file__).name}", file=sys.stderr)
        return int(page != fresh)
    PAGE.write_text(fresh, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
