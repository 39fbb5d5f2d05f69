"""The codec's name comes from the environment and may be assigned (PROTOCOL §2)."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from muxws_green.settings import Settings, settings


@pytest.fixture
def _restore():
    before = settings.codec
    yield
    settings.codec = before


def test_default(monkeypatch):
    monkeypatch.delenv("MUXWS_CODEC", raising=False)
    assert Settings().codec == "json"


def test_environment(monkeypatch):
    monkeypatch.setenv("MUXWS_CODEC", "msgpack")
    assert Settings().codec == "msgpack"
    assert repr(Settings()) == "Settings(codec='msgpack')"


def test_argument_goes_before_the_environment(monkeypatch):
    monkeypatch.setenv("MUXWS_CODEC", "msgpack")
    assert Settings("json").codec == "json"


def test_assigned_until_reloaded(monkeypatch):
    monkeypatch.setenv("MUXWS_CODEC", "one")
    own = Settings()
    own.codec = "two"
    assert own.codec == "two"
    monkeypatch.setenv("MUXWS_CODEC", "three")
    assert own.codec == "two"
    own.reload()
    assert own.codec == "three"


@pytest.mark.usefixtures("_restore")
def test_the_singleton_is_writable():
    settings.codec = "other"
    assert settings.codec == "other"


def test_the_singleton_reads_the_environment_of_its_process():
    code = "from muxws_green.settings import settings; print(settings.codec)"
    environment = {**os.environ, "MUXWS_CODEC": "msgpack", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, timeout=30, check=True)
    assert found.stdout.decode().strip() == "msgpack"
