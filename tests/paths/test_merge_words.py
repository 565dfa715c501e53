"""What `check` says of a record that a merge holds otherwise is so in the commit: where it stands, and whether it does."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import NOTES, commit, git, make_base, run_in

TIME = "2026-01-05T00:00:00.000000Z"
PARTS = [f"data/nodes/note/20260105/part_{number:03d}.jsonl" for number in range(2)]
Records = Mapping[str, Mapping[str, Any]]


def _line(name: str, fields: Mapping[str, Any]) -> str:
    numbered = {} if fields.get("by hand") else {"__id": 100 + ord(name[0])}
    times = {} if fields.get("by hand") else {"__created_at": TIME, "__updated_at": TIME}
    told = {key: value for key, value in fields.items() if key in ("title", "text", "__id")}
    head = numbered | {key: told.pop(key) for key in ("__id",) if key in told}
    return json.dumps(head | {"id": name} | dict(sorted(told.items())) | times, separators=(",", ":")) + "\n"


def _write(root: Path, *parts: Records) -> None:
    for path, records in zip(PARTS, parts, strict=True):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("".join(_line(name, records[name]) for name in sorted(records)), "utf-8")


ALL: Records = {name: {"title": name} for name in "abcdefgh"}
REST: Records = {"z": {}}
CASES: dict[str, tuple[tuple[Records, Records], str]] = {
    "an edit is lost": ((ALL, REST), "keeps changes that are not in it"),
    "gone": (({name: ALL[name] for name in "acdefgh"}, REST), "it is gone"),
    "without number": ((ALL | {"b": {"title": "b", "by hand": True}}, REST), "with its own __id"),
    "another number": ((ALL | {"b": {"title": "b", "__id": 77}}, REST), "with its own __id"),
    "in another part": (({name: ALL[name] for name in "acdefgh"}, REST | {"b": {"title": "b"}}), f"keeps it in {PARTS[0]}"),
    "more than it keeps": ((ALL | {"b": {"title": "b", "text": "theirs"}, "n": {}}, REST), "does not keep it here"),
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_what_is_said_of_a_record_is_so_in_the_commit(tmp_path: Path, case: str) -> None:
    root = make_base(tmp_path / "kb", NOTES)
    (root / ".gitignore").write_text(".duckkb/\n", "utf-8")
    _write(root, ALL, REST)
    commit(root)
    git(root, "checkout", "-q", "-b", "topic")
    _write(root, ALL | {"b": {"title": "b", "text": "theirs"}}, REST)
    commit(root)
    git(root, "checkout", "-q", "main")
    _write(root, ALL | {"h": {"title": "ours"}}, REST)
    commit(root)
    git(root, "merge", "-q", "--no-commit", "topic")
    (first, second), wanted = CASES[case]
    _write(root, {**first, "h": {"title": "ours"}}, second)
    commit(root, "a merge, as somebody left it")
    found = [one for one in run_in(root, ["check", "--format", "jsonl"]).lines if one["code"] == "W_MERGED"]
    assert any(wanted in one["message"] for one in found), found
    for one in found:
        spots = [(path, number) for path in PARTS for number, line in enumerate((root / path).read_text("utf-8").splitlines(), 1)
                 if json.loads(line)["id"] == one["identity"]]  # fmt: skip
        place = (one["path"], one.get("line", 0))
        assert (place in spots) if place[1] else not spots, one
        assert ("gone" in one["message"]) == (not spots), one
