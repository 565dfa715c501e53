"""Files that are only looked at: a part counts as unchanged exactly where reading it anew would find what was read before."""

import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import duckkb
from duckkb.storage.read import is_edited_again, list_changed_parts, reload, survey
from duckkb.storage.tree import Tree
from tests.unit.test_truth_tree import G0, ONTOLOGY, P0, P1, PERSON, node, put, read

OLD_NS = 1_700_000_000_000_000_000
DAY = "data/nodes/person/20260101"


def aged(root: Path) -> None:
    """Every file as if it was written long ago; the ctime cannot be set back, so it is said to be read much later."""
    for path in (root / "data").rglob("*"):
        os.utime(path, ns=(OLD_NS, OLD_NS))


def other_bytes(root: Path) -> None:
    path = root / P0
    status, raw = path.stat(), path.read_bytes()
    path.write_bytes(raw.replace(b"ada", b"eve"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def replaced(root: Path) -> None:
    copy = root / "copy"
    shutil.copy2(root / P0, copy)
    copy.replace(root / P0)


def moved_away(root: Path) -> None:
    if (root / P1).exists():
        (root / P1).unlink()


def new_part(root: Path) -> None:
    put(root, f"{DAY}/part_007.jsonl", node(PERSON, "new"))


def new_day(root: Path) -> None:
    put(root, "data/nodes/person/20260102/part_000.jsonl", node(PERSON, "day"))


def odd_file(root: Path) -> None:
    (root / DAY / "notes.txt").write_text("x", "utf-8")


def odd_gone(root: Path) -> None:
    (root / DAY / "notes.txt").unlink(missing_ok=True)


def empty_table(root: Path) -> None:
    (root / "data/nodes/airport/20260101").mkdir(parents=True, exist_ok=True)


def linked_day(root: Path) -> None:
    day = root / "data/nodes/group/20260101"
    if not day.is_symlink():
        shutil.move(day, root / "elsewhere")
        day.symlink_to(root / "elsewhere")


def linked_part(root: Path) -> None:
    part = root / P0
    if not part.is_symlink():
        part.replace(root / "part")
        part.symlink_to(root / "part")


def format_is_a_folder(root: Path) -> None:
    path = root / "data/FORMAT.json"
    if path.is_file():
        path.unlink()
        path.mkdir()


def gone(root: Path) -> None:
    shutil.rmtree(root / "data", ignore_errors=True)


def nothing(_: Path) -> None:
    pass


STEPS: list[Callable[[Path], None]] = [
    *(nothing, other_bytes, replaced, moved_away, new_part, new_day, odd_file, odd_gone),
    *(empty_table, linked_day, linked_part, format_is_a_folder, gone),
]


def settled(tree: Tree) -> None:
    """Say of every part that it was read long after it was written, as it is with files that are not new."""
    late = {**tree.parts}
    for path, part in late.items():
        tree.parts[path] = replace(part, stamp=replace(part.stamp, read_ns=part.stamp.ctime_ns + 10_000_000_000))


def _digest(tree: Tree, path: str) -> str | None:
    return tree.parts[path].digest if path in tree.parts else None


@given(steps=st.lists(st.sampled_from(STEPS), min_size=1, max_size=5))
@settings(max_examples=120, deadline=None)
def test_the_parts_that_changed_are_those_that_reading_all_anew_finds_changed(
    steps: list[Callable[[Path], None]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        put(root, P0, node(PERSON, "ada"), node(PERSON, "bob"))
        put(root, P1, node(PERSON, "cid"))
        put(root, G0, node(ONTOLOGY.nodes["Group"], "g"))
        (root / "data/FORMAT.json").write_text("{}", "utf-8")
        aged(root)
        tree = read(root)
        settled(tree)
        assert list_changed_parts(tree, root) == []
        for step in steps:
            with suppress(OSError):  # what it would change is gone already
                step(root)
            fresh = read(root)
            paths = sorted(fresh.parts.keys() | tree.parts.keys())
            wanted = [path for path in paths if _digest(fresh, path) != _digest(tree, path)]
            assert wanted or not is_edited_again(tree, root), step.__name__
            assert list_changed_parts(tree, root) == wanted, step.__name__
            assert tree.findings == fresh.findings, step.__name__
            tree.replace(reload(tree, root, wanted))
            settled(tree)


def test_a_part_that_is_edited_again_is_seen_without_the_others(tmp_path: Path) -> None:
    put(tmp_path, P0, node(PERSON, "ada"))
    put(tmp_path, P1, node(PERSON, "cid"))
    tree = read(tmp_path)
    put(tmp_path, P0, node(PERSON, "eve"))
    assert not is_edited_again(tree, tmp_path), "it was never taken in: a survey finds it"
    tree.replace(reload(tree, tmp_path, list_changed_parts(tree, tmp_path)))
    assert not is_edited_again(tree, tmp_path)
    put(tmp_path, P0, node(PERSON, "eva"))
    assert is_edited_again(tree, tmp_path) and list_changed_parts(tree, tmp_path) == [P0]
    (tmp_path / P0).unlink()
    assert not is_edited_again(tree, tmp_path) and list_changed_parts(tree, tmp_path) == [P0]


def grown(root: Path) -> None:
    (root / "docs/deep/er").mkdir(parents=True, exist_ok=True)
    (root / "docs/deep/er/new.md").write_text("# New\n", "utf-8")


def no_document_becomes_a_folder_of_them(root: Path) -> None:
    (root / "docs/plain").unlink()
    (root / "docs/plain").mkdir()
    (root / "docs/plain/in.md").write_text("# In\n", "utf-8")


def folder_becomes_a_link(root: Path) -> None:
    (root / "docs/sub").rename(root / "away")
    (root / "docs/sub").symlink_to(root / "away")


def swapped(root: Path) -> None:
    a, b = root / "docs/a.md", root / "docs/sub/b.md"
    a.rename(root / "aside")
    b.rename(a)
    (root / "aside").rename(b)


def folder_gone(root: Path) -> None:
    shutil.rmtree(root / "docs")


@pytest.mark.parametrize(
    "step", [nothing, grown, no_document_becomes_a_folder_of_them, folder_becomes_a_link, swapped, folder_gone]
)
def test_a_glance_at_documents_sees_what_a_survey_sees(tmp_path: Path, step: Callable[[Path], None]) -> None:
    (tmp_path / "docs/sub").mkdir(parents=True)
    (tmp_path / "config.yaml").write_text("global: {embedding_model: none}\n", "utf-8")
    for name in ("a.md", "sub/b.md", "plain"):
        (tmp_path / "docs" / name).write_text(f"# {name}\n", "utf-8")
    with duckkb.open(tmp_path) as kb:
        kb.documents.add(tmp_path / "docs")
    with duckkb.open(tmp_path) as kb:
        tree, ontology = kb._base.tree, kb._base.ontology
    settled(tree)
    assert list_changed_parts(tree, tmp_path) == []
    glance = tree.seen
    assert glance is not None and glance.still_holds(tmp_path)
    step(tmp_path)
    wanted = sorted(list_changed_parts(tree, tmp_path, survey(tmp_path, ontology)))
    assert bool(wanted or tree.findings) == (step is not nothing)
    tree.seen = glance
    assert glance.still_holds(tmp_path) == (step is nothing)
    assert list_changed_parts(tree, tmp_path) == wanted
