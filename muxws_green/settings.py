"""The deployment's one setting: the codec's name, which both ends of a connection must agree on.

It comes from `MUXWS_CODEC`, is read when a connection is made, and may be assigned during start-up. The variable and
its default are the reference's, so that one environment configures both libraries.
"""

from __future__ import annotations

import os

#: The environment variable that names the codec.
CODEC_VARIABLE = "MUXWS_CODEC"

DEFAULT_CODEC = "json"


class Settings:
    """Writable settings; `settings` is the instance that the library reads.

    Args:
        codec: The codec's name; None reads the environment.
    """

    def __init__(self, codec: str | None = None) -> None:
        self.codec: str = _configured_codec() if codec is None else codec

    def reload(self) -> None:
        """Read the environment again, and with that forget what was assigned."""
        self.codec = _configured_codec()

    def __repr__(self) -> str:
        return f"Settings(codec={self.codec!r})"


def _configured_codec() -> str:
    return os.environ.get(CODEC_VARIABLE, DEFAULT_CODEC)


settings = Settings()
