"""Every code that the package can say is in the catalogue, and every code of the catalogue can be said."""

import re
from pathlib import Path

import duckkb
from duckkb.types.codes import CODES

PACKAGE = Path(duckkb.__file__).parent
_CODE = re.compile(r"\b[EW]_[A-Z0-9]+(?:_[A-Z0-9]+)*\b")


def _said() -> set[str]:
    texts = (path.read_text("utf-8") for path in PACKAGE.rglob("*.py") if path.name != "codes.py")
    return {code for text in texts for code in _CODE.findall(text.replace("os.W_OK", ""))}


def test_every_code_in_the_source_is_in_the_catalogue() -> None:
    assert _said() - set(CODES) == set()


def test_every_code_of_the_catalogue_is_used() -> None:
    assert set(CODES) - _said() == set()


def test_warnings_never_stop_a_command() -> None:
    assert {code.name for code in CODES.values() if code.name.startswith("W_") and code.exit_code} == set()


def test_no_code_has_two_meanings() -> None:
    """The later one would silently stand for both."""
    told = re.findall(r'^    "([EW]_[A-Z0-9_]+)": \(', (PACKAGE / "types/codes.py").read_text("utf-8"), re.MULTILINE)
    assert len(told) >= len(CODES) - 5 and sorted(set(told)) == sorted(told)
