"""What a knowledge base must look like after a fault, judged from its files alone.

Nothing here imports duckkb: an oracle that shares code with what it judges shares its mistakes.
"""

import hashlib
import json
import os
import re
import stat
from pathlib import Path
from typing import Any

PART = re.compile(r"data/(nodes|edges)/[a-z][a-z0-9_]{0,62}/\d{8}/part_\d{3,}\.jsonl")
_ESCAPED = re.compile("[\u007f\u0085\u2028\u2029\u200e\u200f\u061c\u202a-\u202e\u2066-\u2069]")


def tree(root: Path) -> dict[str, bytes]:
    """Every path under data/ that is no folder, with its bytes; a link with its target, anything else by its kind."""
    found: dict[str, bytes] = {}
    for folder, _, names in os.walk(root / "data"):
        for name in names:
            path = Path(folder) / name
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode):
                data = b"link to " + os.fsencode(path.readlink())
            else:
                data = path.read_bytes() if stat.S_ISREG(mode) else b"kind %o" % stat.S_IFMT(mode)
            found[path.relative_to(root).as_posix()] = data
    return found


def records(root: Path) -> dict[tuple[str, int], dict[str, Any]]:
    """Every record in the parts by (table or label, `__id`). Raises AssertionError for what no part may hold."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for path, data in tree(root).items():
        if not PART.fullmatch(path):
            continue
        assert data.endswith(b"\n") or not data, f"{path} has a torn last line"
        for number, line in enumerate(data.decode("utf-8").split("\n")[:-1], 1):
            record = json.loads(line, object_pairs_hook=_once)
            key = (path.split("/")[2], record["__id"])
            assert key not in found, f"{path}:{number} repeats an id"
            assert canonical(line), f"{path}:{number} is not canonical: {line[:200]}"
            found[key] = record
    return found


def canonical(line: str) -> bool:
    """Whether a line has no spaces between tokens, sorted nested keys, and escapes where the format asks for them.

    Identity fields are not known here, so the order of top-level keys is judged at its ends alone.
    """
    record = json.loads(line, object_pairs_hook=_once, parse_float=_Literal, parse_int=_Literal)
    keys = list(record)
    ends_right = keys[0] == "__id" and keys[-2:] == ["__created_at", "__updated_at"] and None not in record.values()
    return ends_right and _rendered(record, sort=False) == line


def leftovers(root: Path) -> list[str]:
    """What a finished or recovered write may not leave: staged files, journals, temporary files, empty folders."""
    state = root / ".duckkb"
    found = [path for path in (state / "txn").rglob("*") if path.is_file()] if state.exists() else []
    for folder, folders, names in os.walk(root / "data"):
        found += [Path(folder) / name for name in names if name.endswith((".tmp", ".part", ".new", "~"))]
        if not folders and not names and Path(folder) != root / "data":
            found.append(Path(folder))
    return sorted(path.relative_to(root).as_posix() for path in found)


def digest(root: Path) -> str:
    """One hash of everything under data/."""
    whole = hashlib.sha256()
    for path, data in sorted(tree(root).items()):
        whole.update(f"{path}\0{len(data)}\0".encode() + data)
    return whole.hexdigest()


class _Literal(str):
    """A number as it is written."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len({name for name, _ in pairs}) == len(pairs), f"a key stands twice: {[name for name, _ in pairs]}"
    return dict(pairs)


def _rendered(value: Any, sort: bool = True) -> str:
    match value:
        case _Literal():
            return str(value)
        case dict():
            names = sorted(value) if sort else list(value)
            return "{" + ",".join(f"{_rendered(name)}:{_rendered(value[name])}" for name in names) + "}"
        case list():
            return "[" + ",".join(map(_rendered, value)) + "]"
        case _:
            text = json.dumps(value, ensure_ascii=False)
            return _ESCAPED.sub(lambda found: f"\\u{ord(found.group()):04x}", text)
