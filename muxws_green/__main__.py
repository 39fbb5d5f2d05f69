"""`python -m muxws_green …`: the same as the script `muxws-green`."""

from __future__ import annotations

from muxws_green.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
