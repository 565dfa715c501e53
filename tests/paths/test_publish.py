"""Publishing: whatever history leads there, and whoever dies on the way, what is published is one whole commit."""

import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from duckkb import app
from duckkb.types.errors import Conflict, DuckkbError, Refused, StateError
from tests.conftest import commit, git, make_base, run_in
from tests.fakes import HashEmbedder
from tests.harness.postgres import running, shared
from tests.harness.publishing.contents import builds, contents
from tests.harness.waiting import HANG_S

CONFIG = """\
nodes:
  Note:
    table: note
    identity: id
    schema:
      type: object
      properties: {id: {type: string}, title: {type: string}, text: {type: string}, size: {type: integer}}
      required: [id]
    search: {full_text: [title, text], vectors: [text]}
edges:
  cites: {from: Note, to: Note, schema: {type: object, properties: {why: {type: string}}}}
"""
TEXTS = [
    "the river flows",
    "old mills and fish",
    "内存数据库",
    "fish swim in the river",
    "",
    "stone bridge stone bridge",
]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return make_base(tmp_path / "kb", CONFIG)


@pytest.fixture
def url() -> str:
    return shared().database()


@pytest.fixture(params=["postgres", pytest.param("lance", marks=pytest.mark.long)])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of any target."""
    if request.param == "postgres":
        return shared().database()
    pytest.importorskip("lancedb", reason="LanceDB is not installed: `make test-lance`")
    return f"lance:{tmp_path / 'lance'}"


@contextmanager
def opened(root: Path) -> Iterator[app.KnowledgeBase]:
    with app.open(root, embedder=HashEmbedder()) as kb:
        yield kb


def put(root: Path, *notes: dict[str, Any], edges: tuple[dict[str, Any], ...] = (), message: str = "put") -> str:
    with opened(root) as kb:
        if notes:
            kb.put("Note", list(notes))
        if edges:
            kb.put("cites", list(edges))
        kb.index_build()
    commit(root, message)
    return git(root, "rev-parse", "HEAD").strip()


def publish(root: Path, url: str, **given: Any) -> Any:
    return app.publish(root, to=url, embedder=HashEmbedder(), **given)


def note(number: int, text: str = "river", **more: Any) -> dict[str, Any]:
    return {"id": f"n{number}", "title": f"title {number}", "text": text, **more}


def assert_as_built(root: Path, url: str) -> None:
    """What is published is what a build of its commit would be."""
    told = contents(url)
    publish(root, f"{url}#whole", ref=told["target"][0], full=True)
    assert told == contents(f"{url}#whole")
    assert app.verify_published(root, to=url, embedder=HashEmbedder())["faults"] == []


def test_a_commit_is_published_and_then_what_changed_alone(base: Path, target: str) -> None:
    put(base, *(note(number) for number in range(20)), edges=({"from": "n1", "to": "n2"},))
    first = publish(base, target)
    assert (first.how, first.put, first.gone) == ("whole", {"Note": 20, "cites": 1}, {})
    assert publish(base, target).how == "nothing"

    with opened(base) as kb:
        kb.delete("Note", "n5")
    head = put(base, note(3, "changed"), note(30), edges=({"from": "n3", "to": "n1"},))
    tried = publish(base, target, dry_run=True)
    done = publish(base, target)
    assert (tried.put, tried.gone) == (done.put, done.gone) == ({"Note": 2, "cites": 1}, {"Note": 1})
    assert tried.how == done.how == "delta" and contents(target)["target"][0] == head
    assert_as_built(base, target)


@pytest.mark.long
def test_documents_that_a_gitignore_names_from_a_commit_on_are_published_no_longer(tmp_path: Path) -> None:
    base = make_base(tmp_path / "kb", f"global: {{embedding_model: none}}\n{CONFIG}")
    address = f"{shared().database()}#docs"
    (base / "docs").mkdir()
    for name in ("a.md", "b.md"):
        (base / "docs" / name).write_text(f"# {name}\n", "utf-8")
    assert run_in(base, ["collection", "add", "docs"]).code == 0

    def published() -> list[Any]:
        commit(base)
        assert run_in(base, ["publish", "--to", address]).code == 0
        return [line["path"] for line in run_in(base, ["find", "docs", "-w", "1=1", "--backend", address]).lines]

    assert published() == ["a.md", "b.md"]
    (base / ".gitignore").write_text("b.md\n", "utf-8")
    assert published() == ["a.md"]
    (base / "docs/b.md").write_text("# changed\n", "utf-8")
    git(base, "add", "-f", "docs/b.md")
    assert published() == ["a.md"]
    definition = base / "ontology/collections/docs.yaml"
    definition.write_text(
        definition.read_text("utf-8").replace("source:\n", "source:\n      gitignore: false\n"), "utf-8"
    )
    assert published() == ["a.md", "b.md"]


def test_a_line_of_what_is_published_says_its_commit_and_can_be_put_back(tmp_path: Path) -> None:
    base = make_base(tmp_path / "kb", f"global: {{embedding_model: none}}\n{CONFIG}")
    address = f"{shared().database()}#notes"
    run_in(base, ["put", "Note", '{"id": "a", "text": "the river flows"}'])
    commit(base)
    unpublished = run_in(base, ["get", "Note", "a", "--backend", address]).err
    assert f"duckkb publish --to '{address}'" in unpublished, "a # begins a comment in some shells"
    assert run_in(base, ["publish", "--to", address]).code == 0
    head = git(base, "rev-parse", "HEAD").strip()
    found = run_in(base, ["find", "Note", "river", "--backend", address, "--fields", "id,_commit"]).line
    assert (found["id"], found["_commit"]) == ("a", head)
    whole = run_in(base, ["get", "Note", "a", "--backend", address]).out
    assert f'"_commit":"{head}"' in whole
    assert run_in(base, ["put", "Note", "-"], stdin=whole).line["unchanged"] == 1


def test_an_older_commit_is_published_where_that_is_meant(base: Path, target: str) -> None:
    put(base, note(1))
    put(base, note(2))
    publish(base, target)
    with pytest.raises(Conflict, match="newer") as refused:
        publish(base, target, ref="HEAD~1")
    assert refused.value.code == "E_BEHIND"
    done = publish(base, target, ref="HEAD~1", rewind=True)
    assert (done.gone, [one.code for one in done.notices]) == ({"Note": 1}, ["W_REWOUND"])
    assert_as_built(base, target)


@pytest.mark.long
def test_a_commit_that_is_gone_is_named(base: Path, url: str, tmp_path: Path) -> None:
    put(base, note(1))
    git(tmp_path, "clone", "-q", str(base), "other")
    put(tmp_path / "other", note(2))
    publish(tmp_path / "other", url)
    put(base, note(3))
    with pytest.raises(StateError, match="but this clone, at") as refused:
        publish(base, url)
    assert (refused.value.code, refused.value.exit_code) == ("E_BEHIND", 1)
    assert publish(base, url, full=True).how == "whole"
    assert_as_built(base, url)
    assert len([one for one in builds(url) if one.startswith("duckkb_base_")]) == 1


@pytest.mark.long
def test_another_ontology_is_built_beside_and_put_in_its_place(base: Path, target: str) -> None:
    put(base, note(1), note(2))
    publish(base, target)
    (base / "config.yaml").write_text(CONFIG.replace("vectors: [text]", "vectors: [title]"), "utf-8")
    put(base, note(3))
    with app.open(base, backend=target, embedder=HashEmbedder()) as kb:
        assert publish(base, target).how == "whole"
        assert [hit.identity for hit in kb.find("Note", "title 2", mode="similar", limit=1)] == ["n2"]
    assert_as_built(base, target)


@pytest.mark.long
def test_a_setting_of_questions_alone_builds_nothing_anew(base: Path, target: str) -> None:
    put(base, note(1))
    publish(base, target)
    (base / "config.yaml").write_text(f"global: {{fusion: {{method: minmax}}}}\n{CONFIG}", "utf-8")
    commit(base)
    assert (publish(base, target).how, publish(base, target).how) == ("delta", "nothing")
    assert_as_built(base, target)


@pytest.mark.long
def test_missing_vectors_are_refused_or_said_and_come_later(
    base: Path, target: str, tmp_path: Path, monkeypatch: Any
) -> None:
    with opened(base) as kb:
        kb.put("Note", [note(1, "river"), note(2, "fish")])
    commit(base)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(Refused, match="2 chunks have no vector") as refused:
        publish(base, target)
    assert refused.value.code == "E_PENDING"
    assert (publish(base, target, pending="ok").pending, publish(base, target).how) == (2, "nothing")
    with app.open(base, backend=target, embedder=HashEmbedder()) as kb:
        assert [one.reason for one in kb.notices] == ["vectors_pending"]
    with opened(base) as kb:
        kb.index_refresh()
    assert publish(base, target).how == "vectors"
    assert contents(target)["target"][0] == git(base, "rev-parse", "HEAD").strip()
    assert_as_built(base, target)


@pytest.mark.long
def test_records_that_stand_twice_are_published_merged(base: Path, target: str) -> None:
    put(base, note(1), note(2))
    publish(base, target)
    part = next((base / "data").rglob("part_*.jsonl"))
    other = part.with_name(
        "part_998.jsonl" if part.name == "part_999.jsonl" else "part_999.jsonl"
    )  # a clone draws its number
    other.write_bytes(part.read_bytes().splitlines(keepends=True)[0].replace(b"river", b"lake"))
    commit(base, "twice")
    publish(base, target, pending="ok")
    assert_as_built_pending(base, target)
    assert len(contents(target)["record"]) == 2
    other.unlink()
    commit(base, "once")
    publish(base, target)
    assert_as_built(base, target)


def assert_as_built_pending(root: Path, url: str) -> None:
    told = contents(url)
    publish(root, f"{url}#whole", ref=told["target"][0], full=True, pending="ok")
    assert told == contents(f"{url}#whole")


def test_of_two_publishers_one_wins_and_the_other_is_told(
    base: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from duckkb.databases.postgres_target import PostgresTarget

    put(base, note(1))
    publish(base, url)
    put(base, note(2))
    both, apply, outcomes = threading.Barrier(2), PostgresTarget.publish, []

    def together(self: PostgresTarget, delta: Any) -> None:
        both.wait(HANG_S)
        apply(self, delta)

    def run() -> None:
        try:
            outcomes.append(publish(base, url).how)
        except Conflict as problem:
            outcomes.append(problem.code)

    monkeypatch.setattr(PostgresTarget, "publish", together)
    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["E_BEHIND", "delta"]
    monkeypatch.undo()
    assert_as_built(base, url)


def test_a_reader_is_answered_whose_build_is_replaced_before_it_reads_anything(
    base: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(base, note(1))
    publish(base, url)
    from duckkb.databases.postgres_target import PostgresTarget

    named = PostgresTarget._find_publication
    replaced = []

    def slow(self: PostgresTarget, connection: Any) -> Any:
        found = named(self, connection)
        if not replaced:
            replaced.append(found.build)
            publish(base, url, full=True)
        return found

    with app.open(base, backend=url, embedder=HashEmbedder()) as kb:
        assert len(kb.find("Note", "river")) == 1
        monkeypatch.setattr(PostgresTarget, "_find_publication", slow)
        assert len(kb.find("Note", "river")) == 1
        assert replaced and replaced[0] not in builds(url)


def test_what_an_address_says_beside_the_place_holds(url: str) -> None:
    from duckkb.databases.postgres_connection import Address, open_connection

    address = Address.parse(f"{url}{'&' if '?' in url else '?'}options=-c%20work_mem%3D7MB")
    with open_connection(address) as connection:
        assert connection.execute("SHOW work_mem").fetchone() == ("7MB",)
        assert connection.execute("SHOW statement_timeout").fetchone() == ("30s",)


@pytest.mark.parametrize("full", [False, True])
def test_readers_are_answered_while_a_publisher_is_at_work(
    base: Path, url: str, monkeypatch: pytest.MonkeyPatch, full: bool
) -> None:
    from duckkb.databases.postgres_rows import Loading

    put(base, note(1))
    publish(base, url)
    put(base, note(2))
    configure, seen = Loading._configure, []

    def asked(self: Loading) -> None:
        with app.open(base, backend=url, embedder=HashEmbedder()) as kb:
            seen.append(len(kb.find("Note", "river")))
        configure(self)

    monkeypatch.setattr(Loading, "_configure", asked)
    assert publish(base, url, full=full).how == ("whole" if full else "delta")
    with app.open(base, backend=url, embedder=HashEmbedder()) as kb:
        seen.append(len(kb.find("Note", "river")))
    assert seen == [1, 2]


@pytest.mark.long
@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.larger) for seed in range(3, 24))])
def test_any_history_leads_to_what_a_build_of_its_commit_is(base: Path, target: str, seed: int) -> None:
    draw = random.Random(seed)
    put(base, *(note(number, draw.choice(TEXTS)) for number in range(12)), edges=({"from": "n1", "to": "n2"},))
    _change(base, draw)
    publish(base, target)
    for _ in range(10):
        step = draw.choice(_STEPS)
        step(base, draw)
        if draw.random() < 0.7:
            publish(base, target, rewind=True, pending="ok")
            assert_as_built_pending(base, target)


def _change(root: Path, draw: random.Random) -> None:
    with opened(root) as kb:
        kb.dedupe()
        known = [line["id"] for line in kb.list("Note", limit=1000)]
        gone = draw.sample(known, min(2, len(known) - 2)) if draw.random() < 0.4 and len(known) > 4 else []
        if gone:
            kb.delete("Note", *gone, cascade=True)
    notes = [note(draw.randrange(20), draw.choice(TEXTS), size=draw.randrange(5)) for _ in range(3)]
    with opened(root) as kb:
        kb.put("Note", list({one["id"]: one for one in notes}.values()))
        ids = [line["id"] for line in kb.list("Note", limit=1000)]
        kb.put("cites", [{"from": draw.choice(ids), "to": draw.choice(ids), "why": str(draw.random())}])
        kb.index_refresh()
    commit(root, "change")


def _merge(root: Path, draw: random.Random) -> None:
    git(root, "checkout", "-q", "-b", "side")
    _change(root, draw)
    git(root, "checkout", "-q", "main")
    _change(root, draw)
    merged = app.prepare_unopened(root)
    done = os.system(f"git -C {merged.root} merge -q -X ours --no-edit side >/dev/null 2>&1")
    if done:
        git(root, "merge", "--abort")
        git(root, "merge", "-q", "-s", "ours", "--no-edit", "side")
    git(root, "branch", "-q", "-D", "side")


def _revert(root: Path, draw: random.Random) -> None:
    git(root, "read-tree", "-u", "--reset", "HEAD~1^{tree}")
    commit(root, "revert")


def _force(root: Path, draw: random.Random) -> None:
    git(root, "reset", "-q", "--hard", "HEAD~1")
    _change(root, draw)


_STEPS: list[Callable[[Path, random.Random], None]] = [_change, _change, _merge, _revert, _force]


@pytest.mark.long
@pytest.mark.parametrize("how", ["delta", "whole"])
def test_a_publisher_killed_at_any_statement_leaves_one_whole_commit(base: Path, url: str, how: str) -> None:
    put(base, note(1), note(2), edges=({"from": "n1", "to": "n2"},))
    publish(base, url)
    before = contents(url)
    put(base, note(2, "changed"), note(3))
    at = 1
    while _dies(lambda: publish(base, url, full=how == "whole"), at, lambda: os._exit(9)) and contents(url) == before:
        at += 1
    assert at > 25
    assert_as_built(base, url)
    publish(base, url, full=True)
    assert len([one for one in builds(url) if one.startswith("duckkb_base_")]) == 1


@pytest.mark.long
@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.larger)])
def test_a_server_killed_at_any_statement_holds_one_whole_commit(base: Path, every: int) -> None:
    with running() as own:
        url = own.database()
        put(base, note(1), note(2), edges=({"from": "n1", "to": "n2"},))
        publish(base, url)
        before, at = contents(url), 1
        put(base, note(2, "changed"), note(3))
        while _dies(lambda: publish(base, url), at, own.kill):
            own.stop()  # which takes leave of what the child has killed
            own.start()
            if contents(url) != before:
                break
            at += every  # each start takes its time
        assert at > 20
        publish(base, url)
        assert_as_built(base, url)


def _dies(work: Callable[[], Any], at: int, kill: Callable[[], Any]) -> bool:
    """Do some work in a child in which, before the statement with this number, something is killed; whether the child did not
    come to its end."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] != 0
    seen = [0]

    def counted(original: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any, **named: Any) -> Any:
            seen[0] += 1
            if seen[0] == at:
                kill()
            return original(*given, **named)

        return run

    psycopg.Cursor.execute = counted(psycopg.Cursor.execute)  # type: ignore[method-assign]
    psycopg.Cursor.copy = counted(psycopg.Cursor.copy)  # type: ignore[method-assign]
    code = 1
    try:
        work()
        code = 0
    except DuckkbError:
        pass
    finally:
        os._exit(code)


@pytest.mark.long
def test_a_role_sees_its_types_and_nothing_of_others(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    more = CONFIG + "  about: {from: Note, to: Secret}\n"
    root = make_base(tmp_path / "kb", more.replace("edges:", _SECRET + "edges:"))
    with opened(root) as kb:
        kb.put("Note", [note(1), note(2)])
        kb.put("Secret", [{"id": "s1", "text": "river of gold"}])
        kb.put("cites", [{"from": "n1", "to": "n2"}])
        kb.put("about", [{"from": "n1", "to": "s1"}])
        kb.index_build()
    commit(root)
    role = f"ann_{url.split('/')[3].split('?')[0]}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN")
    hers = url.replace("postgres@", f"{role}@")
    app.grant_published(root, to=url, role=role, types=["Note", "cites"])
    publish(root, url)
    monkeypatch.chdir(tmp_path)

    def seen() -> Any:
        with app.open(backend=hers, embedder=HashEmbedder(), sql_in_process=True) as kb:
            types = [line["name"] for line in kb.types()]
            found = [hit.identity for hit in kb.find("all", "river", mode="match")]
            tables = kb.sql("SHOW TABLES").rows
            around = [line["id"] for line in kb.neighbors("Note", "n1")]
            with pytest.raises(DuckkbError) as refused:
                kb.get("Secret", "s1")
            with pytest.raises(DuckkbError) as unknown:
                kb.get("Nothing", "s1")
            assert refused.value.message.replace("Secret", "") == unknown.value.message.replace("Nothing", "")
            return types, found, tables, around

    assert seen() == (["Note", "cites"], ["n1", "n2"], _tables("cites", "note"), ["n2"])
    with psycopg.connect(hers) as connection:
        (build,) = connection.execute("SELECT build FROM duckkb.target").fetchone() or ("",)
        text = repr(connection.execute(f"SELECT * FROM {build}.kind, {build}.configuration").fetchall())
        assert "Note" in text and "ecret" not in text
        assert connection.execute(f"SELECT DISTINCT kind FROM {build}.posting").fetchall() == [(1,)]
        for table in ("record_2", "posting_2", "term_2", "vector_2", "record_1"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege), connection.transaction():
                connection.execute(f"SELECT * FROM {build}.{table}")
    publish(root, url, full=True)  # what is granted holds for the next build
    assert seen()[0] == ["Note", "cites"]
    with app.open(backend=hers, embedder=HashEmbedder()) as kb:
        assert kb.get("cites", ["n1", "n2"]) and kb.get("Note", "n1")
        app.grant_published(root, to=url, role=role, types=["Note"])
        assert kb.get("Note", "n1")
        with pytest.raises(DuckkbError, match="no type 'cites'"):
            kb.get("cites", ["n1", "n2"])
    app.grant_published(root, to=url, role=role, types=[])
    with pytest.raises(StateError, match="nothing is published"), app.open(backend=hers, embedder=HashEmbedder()):
        pass
    with pytest.raises(DuckkbError) as nobody:
        app.grant_published(root, to=url, role="postgres", types=["Note"])
    assert nobody.value.code == "E_ROLE"
    with pytest.raises(DuckkbError, match="edges of about lead to records of Secret"):
        app.grant_published(root, to=url, role=role, types=["Note", "about"])


_SECRET = """\
  Secret:
    table: secret
    identity: id
    schema: {type: object, properties: {id: {type: string}, text: {type: string}}, required: [id]}
    search: {full_text: [text]}
"""


def _tables(*names: str) -> tuple[tuple[str], ...]:
    return tuple((name,) for name in sorted([*names, "search_cache", "search_index"]))


@pytest.mark.long
def test_xd_06_a_graph_gives_as_many_as_a_filter_lets_through(base: Path, url: str) -> None:
    (base / "config.yaml").write_text(f"global: {{ann: hnsw}}\n{CONFIG}", "utf-8")
    put(base, *(note(number, f"{TEXTS[number % 4]} {number}", size=number % 10) for number in range(300)))
    publish(base, url)
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT count(*) FROM pg_indexes WHERE indexdef LIKE '%hnsw%'").fetchone() == (1,)
    with app.open(base, backend=url, embedder=HashEmbedder()) as kb:
        for where, matching in ((None, 300), ("size = 3", 30), ("size IN (1, 2, 3, 4, 5)", 150), ("size > 90", 0)):
            for limit in (1, 10, 25, 200):
                found = kb.find("Note", "fish in the river", mode="similar", where=where, limit=limit)
                assert len(found) == min(limit, matching)
                assert all(where != "size = 3" or hit.record["size"] == 3 for hit in found)
