"""Documents and test vectors that the tests read and that are not part of this repository."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).parents[1]


def shared_dir(*parts: str) -> Path:
    """A file or directory among them, such as `shared_dir("conformance", "frames")`; without parts the whole directory.

    They lie in the directory that the environment variable MUXWS_SHARED names, and else in `shared` beside the root of
    the repository.

    Raises:
        FileNotFoundError: It is not there. What cannot be tested is no success, so nothing is skipped.
    """
    path = Path(os.environ.get("MUXWS_SHARED") or ROOT.parent / "shared").joinpath(*parts)
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing; MUXWS_SHARED names the directory where it is")
    return path
