"""Publishing to Lance tables: publishers beside each other, earlier commits, what is kept, and what lies in an object storage."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest

from duckkb import app
from duckkb.types.errors import Conflict, DuckkbError, StateError, UsageError
from tests.conftest import commit, git, make_base
from tests.fakes import HashEmbedder
from tests.harness.publishing.contents import contents
from tests.harness.waiting import HANG_S
from tests.paths.test_publish import CONFIG, assert_as_built, note, opened, publish, put

pytest.importorskip("lancedb", reason="LanceDB is not installed: `make test-lance`")
pytestmark = pytest.mark.long


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return make_base(tmp_path / "kb", CONFIG)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"lance:{tmp_path / 'lance'}"


def store(url: str) -> Any:
    from duckkb.databases.lance_tables import Store
    from duckkb.types.database_urls import LanceAddress

    return Store(LanceAddress.parse(url))


def tables(url: str) -> set[str]:
    import lancedb

    return {*lancedb.connect(store(url).address.place).list_tables(limit=1000).tables}


def builds(url: str) -> set[int]:
    return {int(name.partition("-")[0]) for name in tables(url) - {"publication", "mine"}}


def tags(url: str, name: str) -> dict[str, Any]:
    import lancedb

    found: dict[str, Any] = lancedb.connect(store(url).address.place).open_table(name).tags.list()
    return found


def texts(root: Path, url: str, question: str = "river") -> list[Any]:
    with app.open(root, backend=url, embedder=HashEmbedder(), sql_in_process=True) as kb:
        return sorted((hit.identity, hit.record["text"]) for hit in kb.find("Note", question, mode="match"))


@pytest.mark.parametrize("round_", range(4))
def test_of_publishers_at_once_one_wins_and_the_others_are_told(
    base: Path, url: str, monkeypatch: pytest.MonkeyPatch, round_: int
) -> None:
    from duckkb.databases.lance_target import LanceTarget

    put(base, note(1), note(2), edges=({"from": "n1", "to": "n2"},))
    publish(base, url)
    put(base, note(2, "changed"), note(3), edges=({"from": "n1", "to": "n3"},))
    several, apply, outcomes = threading.Barrier(3), LanceTarget.publish, []

    def together(self: LanceTarget, delta: Any) -> None:
        several.wait(HANG_S)
        apply(self, delta)

    def run(full: bool) -> None:
        try:
            outcomes.append(publish(base, url, full=full).how)
        except Conflict as problem:
            outcomes.append(problem.code)

    monkeypatch.setattr(LanceTarget, "publish", together)
    threads = [threading.Thread(target=run, args=(number == round_ == 3,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes)[:2] == ["E_BEHIND", "E_BEHIND"] and sorted(outcomes)[2] in ("delta", "whole"), outcomes
    monkeypatch.undo()
    assert_as_built(base, url)
    put(base, note(4))
    assert publish(base, url).how == "delta"
    assert_as_built(base, url)


def test_a_publication_that_comes_between_reading_and_writing_is_not_lost(
    base: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a publisher reads of what is there, another one publishes right before, or right after."""
    from duckkb.databases import lance_target

    put(base, note(1))
    publish(base, url)
    first = put(base, note(2))
    second = put(base, note(3))
    row = lance_target.Store.read_number_and_head
    for between in range(4):
        monkeypatch.undo()
        publish(base, url, ref=f"{first}~1", rewind=True)
        read: list[bool] = []

        def numbered(self: Any, between: int = between, read: "list[bool]" = read) -> Any:
            read.append(True)
            if len(read) == between + 1:
                monkeypatch.setattr(lance_target.Store, "read_number_and_head", row)
                publish(base, url, ref=second)
            return row(self)

        monkeypatch.setattr(lance_target.Store, "read_number_and_head", numbered)
        try:
            publish(base, url, ref=first)
        except Conflict as problem:
            assert problem.code == "E_BEHIND"
        monkeypatch.undo()
        expected = {first, second} if len(read) <= between else {second}
        assert contents(url)["target"][0] in expected
        assert_as_built(base, url)


def test_a_reading_holds_its_commit_and_earlier_ones_are_asked_by_their_hash(base: Path, url: str) -> None:
    first = put(base, note(1, "river one"), note(2, "river two"))
    publish(base, url)
    with app.open(base, backend=url, embedder=HashEmbedder(), sql_in_process=True) as kb:
        hits = kb.find("Note", "river", mode="match")
        second = put(base, note(2, "lake"), note(3, "river three"))
        publish(base, url)
        assert [hit.record["text"] for hit in hits] == ["river one", "river two"]  # read after it was replaced
        assert [hit.identity for hit in kb.find("Note", "river", mode="match")] == ["n1", "n3"]
    assert texts(base, f"{url}?at={first}") == texts(base, f"{url}?at={first[:8]}")
    assert texts(base, f"{url}?at={first}") == [("n1", "river one"), ("n2", "river two")]
    assert texts(base, f"{url}?at={second[:7]}") == texts(base, url) == [("n1", "river one"), ("n3", "river three")]
    assert app.verify_published(base, to=f"{url}?at={first}", embedder=HashEmbedder())["faults"] == []
    with pytest.raises(StateError, match="not among the commits kept") as missing:
        texts(base, f"{url}?at=0123456789")
    assert missing.value.code == "E_NOT_PUBLISHED" and first[:12] in str(missing.value.suggestion)
    put(base, note(4))
    with pytest.raises(UsageError, match="cannot publish to it"):
        publish(base, f"{url}?at={first}")


def test_so_many_publications_stay_and_what_they_alone_held_goes(base: Path, url: str) -> None:
    import lancedb

    kept = f"{url}?keep=2"
    commits = []
    for number in range(5):
        commits.append(put(base, note(1, f"river {number}")))
        publish(base, kept, full=number in (2, 4))
        if number == 2:  # what an operator keeps there is his
            connection = lancedb.connect(store(url).address.place)
            connection.create_table("mine", [{"id": 1}])
            (record,) = [name for name in tables(url) if name.startswith("00000003") and "record-node" in name]
            connection.open_table(record).tags.create("mine", 1)
            connection.open_table("publication").tags.create("mine", 1)
    assert {*tags(url, "publication")} == {*commits[-2:], "mine"}
    for one in commits[-2:]:
        assert len(texts(base, f"{url}?at={one}")) == 1
    with pytest.raises(StateError):
        texts(base, f"{url}?at={commits[2]}")
    assert builds(url) == {3, 5}  # both of them are needed
    assert {name.partition(".")[0] for name in tags(url, record)} == {commits[3], "mine"}
    publish(base, kept, full=True)
    assert builds(url) == {3, 5, 6}, "what was published until now may still be read"
    publish(base, kept, full=True)
    assert builds(url) == {3, 6, 7}


def test_many_deltas_are_put_together_and_stay_what_a_build_is(base: Path, url: str, monkeypatch: Any) -> None:
    import lancedb

    from duckkb.databases import lance_tables

    monkeypatch.setattr(lance_tables, "_CHANGES", 4)
    monkeypatch.setattr(lance_tables, "_SPARE", timedelta(seconds=0.5))
    put(base, *(note(number) for number in range(6)), edges=({"from": "n1", "to": "n2"},))
    kept = f"{url}?keep=3"
    publish(base, kept)
    commits = []
    for number in range(10):
        commits.append(put(base, note(number % 3, f"river {number}")))
        publish(base, kept)
    assert_as_built(base, url)
    head = store(url).head()
    name, _, changes = head.kinds["Note"].tables["record"]
    assert changes == 10 % 4
    table = lancedb.connect(store(url).address.place).open_table(name)
    assert table.list_versions()[0]["version"] > 1, "versions that nobody needs were removed"
    for one in commits[-3:]:
        assert app.verify_published(base, to=f"{url}?at={one}", embedder=HashEmbedder())["faults"] == []


def test_what_was_changed_behind_its_back_is_told(base: Path, url: str) -> None:
    import lancedb

    from duckkb.databases.lance_tables import Head

    put(base, note(1, "river"), note(2, "fish swim"))
    publish(base, url)
    there = store(url)
    head = there.head()
    for table, condition, said in (
        ("record", "id IS NOT NULL", "records are not as many"),
        ("posting", "times >= 1", "the terms are not as many"),
        ("vector", "seq = 0", "the vectors are not as many"),
    ):
        name, version, _ = head.kinds["Note"].tables[table]
        opened_ = lancedb.connect(there.address.place).open_table(name)
        opened_.delete(condition)
        head.kinds["Note"].tables[table] = name, opened_.version, 0
        number, _ = there.read_number_and_head()
        assert there.swap(number, Head(number + 1, head.watermark, head.kinds, head.configuration))
        faults = app.verify_published(base, to=url, embedder=HashEmbedder())["faults"]
        assert any(said in one for one in faults), faults
        head.kinds["Note"].tables[table] = name, version, 0
    assert publish(base, url, full=True).how == "whole"
    assert_as_built(base, url)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("lance:", "names no folder"),
        ("lance:x?aws_secret_access_key=hunter2", "takes .at=COMMIT"),
        ("lance:x?keep=0", "1 to 1000"),
        ("lance:x?at=HEAD", "7 or more digits"),
        ("lance+s3://", "names no bucket"),
        ("lance+s3://AKIA:hunter2@bucket/x", "holds a key"),
        ("lance+ftp://x/y", "begins with postgresql: or lance:"),
    ],
)
def test_an_address_that_is_none_is_refused_and_not_repeated(base: Path, given: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as refused:
        texts(base, given)
    assert refused.value.code == "E_URL"
    assert "hunter2" not in f"{refused.value}{refused.value.suggestion}"


def test_a_folder_that_is_none_is_told_and_asking_makes_none(base: Path, tmp_path: Path) -> None:
    with pytest.raises(StateError, match="nothing is published"):
        texts(base, f"lance:{tmp_path / 'nowhere'}")
    assert not (tmp_path / "nowhere").exists()
    (tmp_path / "file").write_text("x")
    put(base, note(1))
    with pytest.raises(DuckkbError) as refused:
        publish(base, f"lance:{tmp_path / 'file'}/x")
    assert refused.value.code == "E_DATABASE"
    with pytest.raises(UsageError, match="files without roles") as grant:
        app.grant_published(base, to=f"lance:{tmp_path / 'x'}", role="ann", types=["Note"])
    assert grant.value.code == "E_ROLE"


STORAGE = Path(__file__).resolve().parents[2] / ".venv" / "object-storage"


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """A bucket of a server that speaks S3, with the environment by which it is reached."""
    if not (STORAGE / "moto").is_dir():
        pytest.skip("no object storage here: `make test-lance`")
    port = 20_000 + os.getpid() % 20_000
    told = tmp_path / "moto"
    with told.open("wb") as log:
        server = subprocess.Popen(
            [sys.executable, "-c", "from moto.server import main; main()", "-H", "127.0.0.1", "-p", str(port)],
            env={**os.environ, "PYTHONPATH": str(STORAGE)},
            stdout=log,
            stderr=log,
        )
    at = f"http://127.0.0.1:{port}"
    try:
        wait_for(at, server)
        urlopen(Request(f"{at}/duckkb-test", method="PUT"), timeout=HANG_S).close()
        for name, value in {
            "AWS_ENDPOINT": at,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "AKIAFAKE",
            "AWS_SECRET_ACCESS_KEY": "hunter2",
            "AWS_REGION": "us-east-1",
        }.items():
            monkeypatch.setenv(name, value)
        yield "lance+s3://duckkb-test/some/where"
    finally:
        server.terminate()
        server.wait()


def wait_for(address: str, server: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + HANG_S
    while time.monotonic() < until and server.poll() is None:
        try:
            urlopen(address, timeout=5).close()
            return
        except URLError:
            time.sleep(0.1)
    pytest.fail("the object storage does not start")


def test_an_object_storage_holds_a_base_too(base: Path, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = put(base, note(1, "river one"), note(2, "old mills"), edges=({"from": "n1", "to": "n2"},))
    assert publish(base, bucket).target == "s3://duckkb-test/some/where"
    put(base, note(2, "river two"), note(3, "内存数据库"))
    assert publish(base, bucket).how == "delta"
    assert_as_built(base, bucket)
    assert [name for name, _ in texts(base, bucket)] == ["n1", "n2"]
    assert [name for name, _ in texts(base, f"{bucket}?at={first}")] == ["n1"]
    monkeypatch.setenv("AWS_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(DuckkbError) as lost:
        texts(base, bucket)
    assert lost.value.code == "E_DATABASE" and "hunter2" not in str(lost.value)


def test_a_killed_publisher_leaves_one_whole_commit(base: Path, url: str, tmp_path: Path) -> None:
    """One death of each kind; all of them are a campaign."""
    from tests.harness.publishing.lance_deaths import Deaths

    put(base, note(1), note(2), edges=({"from": "n1", "to": "n2"},))
    publish(base, url)
    deaths = Deaths(base, url)
    for step in (1, 4, 9):
        put(base, note(2, f"changed {step}"), note(3), message=str(step))
        before = contents(url)
        assert deaths.at(step)
        assert contents(url) == before
    publish(base, url)
    assert_as_built(base, url)
    assert git(base, "rev-parse", "HEAD").strip() in tags(url, "publication")
    with opened(base) as kb:
        kb.delete("Note", "n3")
    commit(base, "gone")
    assert publish(base, url).gone == {"Note": 1}
    assert_as_built(base, url)
