"""Text from elsewhere, made harmless for a terminal.

A remote chooses payloads, reasons, error texts and header values; shown as they are they could move the cursor, change
the title, answer queries into the keyboard buffer, or turn the rest of a line around. Everything that is no visible
character is therefore shown as its JSON escape. Whatever a command prints goes through here.
"""

from __future__ import annotations

import unicodedata

_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def escaped(text: str) -> str:
    """`text` without control characters (C0, C1, DEL), format characters (bidi overrides among them), surrogates, line
    separators, and what Unicode has not assigned.

    The text of a JSON document stays one with the same value: such characters stand in its strings only.
    """
    # True only of what needs nothing done to it, which is nearly all there is.
    if text.isprintable():
        return text
    return "".join(char if _is_visible(char) else _escape(char) for char in text)


def _is_visible(char: str) -> bool:
    return char.isprintable() or unicodedata.category(char) == "Zs"


def _escape(char: str) -> str:
    if char in _SHORT:
        return _SHORT[char]
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
