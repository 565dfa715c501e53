"""A write that dies at any step ends, after recovery, exactly old or exactly new, with nothing left over.

The process really ends (`os._exit` in a forked child). What is compared are bytes read by walking the tree.
"""

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from duckkb.storage import commit_protocol
from duckkb.types import errors

NOTE = "data/nodes/note/20260101"
OLD = {
    f"{NOTE}/part_000.jsonl": b'{"id":"a"}\n',
    f"{NOTE}/part_007.jsonl": '{"id":"二","text":"旧的内容"}\n'.encode(),
    "data/edges/cites/20251231/part_007.jsonl": b'{"from":"a","to":"b"}\n',
    "data/edges/knows/20251231/part_007.jsonl": b"",
    "data/FORMAT.json": b'{"format":1}\n',
    "data/nodes/note/notes.txt": b"somebody's own file\n",
}
CHANGES = {
    f"{NOTE}/part_000.jsonl": b'{"id":"a","n":1}\n{"id":"b"}\n',
    f"{NOTE}/part_007.jsonl": '{"id":"二","text":"新的内容"}\n'.encode(),
    "data/nodes/fresh/20260102/part_123.jsonl": b"",
    "data/edges/cites/20251231/part_007.jsonl": None,
}
NEW = {path: data for path, data in {**OLD, **CHANGES}.items() if data is not None}


def make_base(root: Path) -> Path:
    for path, data in OLD.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
    return root


def changes() -> list[commit_protocol.FileChange]:
    def sha(path: str) -> str | None:
        return hashlib.sha256(OLD[path]).hexdigest() if path in OLD else None

    return [commit_protocol.FileChange(path, sha(path), data) for path, data in CHANGES.items()]


def files(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and ".duckkb" not in path.parts
    }


def empty_folders(root: Path) -> list[str]:
    return [
        str(path.relative_to(root)) for path in (root / "data").rglob("*") if path.is_dir() and not any(path.iterdir())
    ]


def leftovers(root: Path) -> list[str]:
    state = root / ".duckkb"
    return sorted(
        path.relative_to(state).as_posix()
        for path in state.rglob("*")
        if path.name not in (".gitignore", "lock", "txn")
    )


def steps_of(act: Callable[[Callable[[str], None]], object]) -> list[str]:
    names: list[str] = []
    act(names.append)
    return names


def die_at(step: int, act: Callable[[Callable[[str], None]], object]) -> int:
    """Run `act` in a child that ends just before its step of that number; the child's exit code (9: it died there)."""
    seen = 0

    def watch(_: str) -> None:
        nonlocal seen
        if seen == step:
            os._exit(9)
        seen += 1

    child = os.fork()
    if child == 0:
        code = 1
        try:
            act(watch)
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def commit(root: Path) -> Callable[[Callable[[str], None]], object]:
    return lambda watch: commit_protocol.commit(root, changes(), on_step=watch)


def recover(root: Path) -> Callable[[Callable[[str], None]], object]:
    return lambda watch: commit_protocol.recover(root, on_step=watch)


def crashed_base(folder: Path, step: int) -> Path:
    folder.mkdir()
    root = make_base(folder)
    assert die_at(step, commit(root)) == 9
    return root


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return steps_of(commit(make_base(tmp_path_factory.mktemp("whole"))))


def assert_clean(root: Path, expected: dict[str, bytes]) -> None:
    assert files(root) == expected
    assert empty_folders(root) == []
    assert leftovers(root) == []
    assert not commit_protocol.is_pending(root)


def test_a_write_that_does_not_die_gives_the_new_files_and_leaves_nothing(tmp_path: Path) -> None:
    written = commit_protocol.commit(make_base(tmp_path), changes())
    assert_clean(tmp_path, NEW)
    assert set(written) == {path for path, data in CHANGES.items() if data is not None}
    for path, facts in written.items():
        now = (tmp_path / path).stat()
        assert (now.st_ino, now.st_mtime_ns, now.st_size) == (facts.st_ino, facts.st_mtime_ns, facts.st_size)


def test_dk_15_death_at_any_step_ends_all_old_or_all_new_after_recovery(tmp_path: Path, steps: list[str]) -> None:
    seal = steps.index("seal")
    for step, name in enumerate(steps):
        root = crashed_base(tmp_path / str(step), step)
        assert commit_protocol.is_pending(root) == (step > 0), name
        recovery = commit_protocol.recover(root)
        assert_clean(root, NEW if step > seal else OLD)
        if step == 0:
            assert recovery.action == "none"
        elif step <= seal or name.startswith("remove"):  # once the journal is retired, what is left is rubbish
            assert recovery.action == "discarded"
        else:
            assert (recovery.action, set(recovery.files)) == ("finished", set(CHANGES))
        assert commit_protocol.recover(root).action == "none"


@pytest.mark.parametrize(
    "third", [0, pytest.param(1, marks=pytest.mark.larger), pytest.param(2, marks=pytest.mark.larger)]
)
def test_dk_15_death_at_any_step_of_any_recovery_changes_nothing_about_the_end(
    tmp_path: Path, steps: list[str], third: int
) -> None:
    seal = steps.index("seal")
    cases = 0
    for step in range(1, len(steps)):
        crashed = crashed_base(tmp_path / f"{step}", step)
        length = len(steps_of(recover(shutil.copytree(crashed, tmp_path / f"{step}-length"))))
        for again in range((third + step) % 3, length, 3):
            root = shutil.copytree(crashed, tmp_path / f"{step}-{again}")
            assert die_at(again, recover(root)) == 9
            commit_protocol.recover(root)
            assert_clean(root, NEW if step > seal else OLD)
            cases += 1
    assert cases > 20


def test_dk_15_the_first_write_of_a_base_without_data_ends_with_all_or_nothing(tmp_path: Path) -> None:
    first = [commit_protocol.FileChange(path, None, data) for path, data in OLD.items()]

    def act(root: Path) -> Callable[[Callable[[str], None]], object]:
        return lambda watch: commit_protocol.commit(root, first, on_step=watch)

    (tmp_path / "whole").mkdir()
    names = steps_of(act(tmp_path / "whole"))
    for step in range(len(names)):
        for decide in (commit_protocol.recover, commit_protocol.abort):
            root = tmp_path / f"{step}-{decide.__name__}"
            root.mkdir()
            assert die_at(step, act(root)) == 9
            decide(root)
            retired = names.index("retire the journal")
            done = step > names.index("seal") and (decide is commit_protocol.recover or step > retired)
            assert files(root) == (OLD if done else {})
            assert (root / "data").exists() is done
            assert leftovers(root) == []


def test_a_crash_never_shows_a_file_that_is_neither_old_nor_new(tmp_path: Path, steps: list[str]) -> None:
    for step in range(len(steps)):
        found = files(crashed_base(tmp_path / str(step), step))
        for path in OLD.keys() | NEW.keys():
            assert found.get(path) in (OLD.get(path), NEW.get(path))


def test_a_journal_cut_at_any_length_is_discarded(tmp_path: Path, steps: list[str]) -> None:
    root = crashed_base(tmp_path / "base", steps.index("make the seal durable"))
    (stage,) = (root / ".duckkb/txn").iterdir()
    kept = {path.name: path.read_bytes() for path in stage.iterdir()}
    whole = kept.pop("journal")
    for length in range(len(whole)):
        stage.mkdir(exist_ok=True)
        for name, data in kept.items():
            (stage / name).write_bytes(data)
        (stage / "journal").write_bytes(whole[:length])
        assert commit_protocol.recover(root).action == "discarded"
        assert files(root) == OLD
        assert leftovers(root) == []


def test_a_journal_with_any_flipped_byte_never_carries_anything_out(tmp_path: Path, steps: list[str]) -> None:
    root = crashed_base(tmp_path / "base", steps.index("make the seal durable"))
    (stage,) = (root / ".duckkb/txn").iterdir()
    kept = {path.name: path.read_bytes() for path in stage.iterdir()}
    whole = kept["journal"]
    for at in range(0, len(whole), 7):
        stage.mkdir(exist_ok=True)
        for name, data in kept.items():
            (stage / name).write_bytes(data)
        (stage / "journal").write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert commit_protocol.recover(root).action == "discarded"
        assert files(root) == OLD


@pytest.mark.parametrize("path", [path for path in CHANGES if path in OLD])
def test_dk_18_a_third_state_stops_recovery_and_keeps_everything(tmp_path: Path, steps: list[str], path: str) -> None:
    for step in range(steps.index("make the seal durable"), steps.index("make the targets durable")):
        root = crashed_base(tmp_path / f"{step}", step)
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_bytes(b"somebody's edit\n")
        before = files(root), leftovers(root)
        with pytest.raises(errors.StateError) as caught:
            commit_protocol.recover(root)
        assert caught.value.code == "E_RECOVER"
        assert [finding.path for finding in caught.value.findings] == [path]
        assert (files(root), leftovers(root)) == before


@pytest.mark.parametrize(("decide", "expected"), [(commit_protocol.forward, NEW), (commit_protocol.abort, OLD)])
def test_forward_and_abort_end_a_third_state_and_keep_a_copy_of_it(
    tmp_path: Path, steps: list[str], decide: Callable[[Path], commit_protocol.Recovery], expected: dict[str, bytes]
) -> None:
    path = f"{NOTE}/part_000.jsonl"
    for step in range(steps.index("make the seal durable"), steps.index("retire the journal") + 1):
        root = crashed_base(tmp_path / f"{step}", step)
        (root / path).write_bytes("别人的修改\n".encode())
        shown = commit_protocol.show(root)
        assert shown["state"] == "sealed"
        assert {file["path"]: file["standing"] for file in shown["files"]}[path] == "third"
        recovery = decide(root)
        assert files(root) == expected
        assert empty_folders(root) == []
        assert not commit_protocol.is_pending(root)
        assert [(root / copy).read_bytes() for copy in recovery.rescued] == ["别人的修改\n".encode()]


@pytest.mark.parametrize("third", [False, True])
def test_an_abort_that_dies_at_any_step_is_carried_on_by_recovery(
    tmp_path: Path, steps: list[str], third: bool
) -> None:
    late = steps.index("retire the journal")

    def base(name: str) -> Path:
        root = crashed_base(tmp_path / name, late)
        if third:
            (root / NOTE / "part_007.jsonl").write_bytes(b"third\n")
        return root

    whole = base("whole")
    names = steps_of(lambda watch: commit_protocol.abort(whole, on_step=watch))
    assert files(whole) == OLD
    for step in range(1, len(names)):
        root = base(str(step))
        assert die_at(step, lambda watch, root=root: commit_protocol.abort(root, on_step=watch)) == 9
        commit_protocol.recover(root)
        assert files(root) == OLD
        assert empty_folders(root) == []
        assert not commit_protocol.is_pending(root)
        copies = [copy.read_bytes() for copy in (root / ".duckkb").rglob("rescued/**/*") if copy.is_file()]
        assert copies == ([b"third\n"] if third else [])


def test_the_oracle_sees_a_half_done_write(tmp_path: Path, steps: list[str]) -> None:
    root = crashed_base(tmp_path / "base", steps.index(f"replace {NOTE}/part_007.jsonl"))
    assert files(root) not in (OLD, NEW)
