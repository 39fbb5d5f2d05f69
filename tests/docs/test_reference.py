"""Every public name and every interface is on a page of the reference, and all of an interface is shown."""

from __future__ import annotations

import importlib.util
import re
from types import ModuleType

import pytest

import muxws_green
from muxws_green import interfaces, messaging, testing
from muxws_green.testing import contracts
from tests.shared import ROOT

REFERENCE = ROOT / "docs" / "reference"
_DIRECTIVE = re.compile(
    r"^\.\. (?:auto(?:class|function|exception|data)|currentmodule|automodule|autointerface):: (\S+)$"
)


def listed(page: str) -> set[str]:
    """The whole names that a page shows by a directive or, being no objects of their own, as a term."""
    module, names = "", set()
    for line in (REFERENCE / f"{page}.rst").read_text(encoding="utf-8").splitlines():
        if line.startswith((".. currentmodule::", ".. automodule::")):
            module = line.split()[-1]
        elif found := _DIRECTIVE.match(line):
            names.add(found[1] if "." in found[1] else f"{module}.{found[1]}")
        elif line.startswith("``") and line.endswith("``"):
            names.add(f"{module}.{line.strip('`')}")
    return names


def everything() -> set[str]:
    return {name for path in REFERENCE.glob("*.rst") for name in listed(path.stem)}


@pytest.mark.parametrize("module", [muxws_green, messaging, testing], ids=lambda module: module.__name__)
def test_every_public_name_is_there(module: ModuleType) -> None:
    assert {f"{module.__name__}.{name}" for name in module.__all__} <= everything()


def test_the_contract_suites_are_there_as_a_whole() -> None:
    text = (REFERENCE / "testing.rst").read_text()
    assert f".. automodule:: {contracts.__name__}\n   :members:" in text


def test_whatever_is_there_exists() -> None:
    for name in everything():
        module, _, attribute = name.rpartition(".")
        assert hasattr(importlib.import_module(module), attribute), name


def test_every_page_is_in_the_table_of_contents() -> None:
    contents = (REFERENCE / "index.rst").read_text().split()
    assert {path.stem for path in REFERENCE.glob("*.rst")} - {"index"} <= set(contents)


# Interfaces


@pytest.fixture(scope="module")
def extension() -> ModuleType:
    pytest.importorskip("sphinx", reason="the docs extra is not installed")
    path = ROOT / "docs" / "tools" / "interface_pages.py"
    spec = importlib.util.spec_from_file_location("interface_pages", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def names_of_interfaces() -> list[str]:
    return [name for name, value in vars(interfaces).items() if re.match("I[A-Z]", name) and hasattr(value, "names")]


def test_every_interface_is_there() -> None:
    assert listed("interfaces") == {f"muxws_green.interfaces.{name}" for name in names_of_interfaces()}
    assert len(names_of_interfaces()) >= 15


@pytest.mark.parametrize("name", names_of_interfaces())
def test_all_of_an_interface_is_shown(name: str, extension: ModuleType) -> None:
    interface = getattr(interfaces, name)
    shown = "\n".join(extension.describe(interface))
    assert f".. py:class:: {name}" in shown
    for member in interface.names(all=True):
        assert re.search(rf"py:(method|attribute):: {member}\b", shown), member


def test_an_attribute_has_its_type_and_its_comment(extension: ModuleType) -> None:
    shown = "\n".join(extension.describe(interfaces.ICodec))
    assert ".. py:attribute:: binary\n      :type: bool\n\n      True where messages are binary." in shown


def test_attributes_may_share_a_comment(extension: ModuleType) -> None:
    shown = "\n".join(extension.describe(interfaces.ITransport))
    assert shown.count("Bytes that have been received so far") == 2


def test_a_method_has_its_whole_signature(extension: ModuleType) -> None:
    shown = "\n".join(extension.describe(interfaces.IPeer))
    assert ".. py:method:: ping(timeout: float = 5.0) -> float" in shown
    assert "*, headers: Mapping[str, Any] | None = None" in shown
