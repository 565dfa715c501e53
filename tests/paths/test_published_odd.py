"""Publishing what is odd but valid: a reader of what is published gives what a clone at that commit gives."""

import json
import traceback
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from duckkb import app
from duckkb.databases.postgres_connection import Address
from duckkb.types.errors import Unavailable, UsageError
from tests.conftest import commit, git, make_base, run_in
from tests.harness.postgres import PASSWORD, shared

CONFIG = """\
global: {embedding_model: none}
nodes:
  Note:
    table: note
    identity: id
    schema:
      type: object
      description: "a\\u2028b \\x7f 1e5"
      properties:
        id: {type: string}
        text: {type: string}
        moment: {type: string, format: date-time}
        share: {type: number, multipleOf: 0.00001}
    search: {full_text: [text]}
edges:
  cites: {from: Note, to: Note, schema: {type: object, properties: {why: {type: string}}}}
"""


@pytest.fixture
def url() -> str:
    return shared().database()


def made(tmp_path: Path, config: str, **lines: list[dict[str, object]]) -> Path:
    root = make_base(tmp_path / "kb", config)
    for name, some in lines.items():
        ran = run_in(root, ["put", name], stdin="\n".join(map(json.dumps, some)))
        assert ran.code == 0, ran.err
    commit(root)
    return root


def test_filters_on_ends_and_on_moments_far_from_utc_choose_what_a_clone_chooses(tmp_path: Path, url: str) -> None:
    moments = ["2024-01-01T00:00:00+20:00", "2024-01-01T00:00:00-23:59", "2023-12-31T04:00:00Z", "2024-01-01T23:59:00Z"]
    notes = [{"id": f"n{at}", "text": "river", "moment": moment} for at, moment in enumerate(moments)]
    edges = [{"from": "n0", "to": "n1", "why": "a"}, {"from": "n1", "to": "n2"}]
    root = made(tmp_path, CONFIG, Note=notes, cites=edges)
    assert run_in(root, ["publish", "--to", url]).code == 0
    with app.open(root) as clone, app.open(root, backend=url) as published:
        number = clone.sql("SELECT __id AS id FROM note WHERE id = 'n0'").rows[0][0]
        for name, where in (
            ("cites", f"from_id = {number}"),
            ("cites", f"from_id <> {number}"),
            ("cites", "to_id IS NULL"),
            ("cites", "from_id IS NOT NULL"),
            ("cites", f"from_id = {number} OR why = 'b'"),
            ("Note", "moment = '2023-12-31T04:00:00'"),
            ("Note", "moment < '2024-01-01'"),
            ("Note", "moment >= '2024-01-01T23:59:00'"),
            ("Note", "moment IN ('2024-01-01T23:59:00', '2000-01-01')"),
        ):
            chosen = [hit.identity for hit in clone.find(name, where=where, limit=9)]
            assert [hit.identity for hit in published.find(name, where=where, limit=9)] == chosen, where
            assert chosen or where == "to_id IS NULL", where


def test_a_question_asked_again_is_answered_of_the_publication_that_is_there_now(tmp_path: Path, url: str) -> None:
    """The commit may be the same, but terms have other numbers."""
    root = made(tmp_path, CONFIG, Note=[{"id": "a", "text": "old mills"}, {"id": "b", "text": "the river"}])
    first = git(root, "rev-parse", "HEAD").strip()
    assert run_in(root, ["publish", "--to", url]).code == 0
    with app.open(root, backend=url) as published:

        def found() -> list[object]:
            return [hit.identity for hit in published.find("Note", "river", mode="match")]

        assert found() == ["b"]
        for text in ("bridge stone", "alpine fish"):  # numbers are given as terms come
            run_in(root, ["put", "Note", json.dumps({"id": "a", "text": text}), "--merge"])
            commit(root)
            assert run_in(root, ["publish", "--to", url]).code == 0
        assert run_in(root, ["publish", "--to", url, "--rewind", "--ref", first]).code == 0
        assert found() == ["b"]
        assert run_in(root, ["publish", "--to", url, "--full", "--ref", first]).code == 0
        assert found() == ["b"]


def test_configurations_and_identities_that_a_clone_takes_are_published(tmp_path: Path, url: str) -> None:
    long = ["x" * 20 + "".join(chr(0x4E00 + (7 * at * (1 + one)) % 20000) for at in range(320)) for one in range(2)]
    root = made(
        tmp_path,
        CONFIG.replace("edges:\n", "policies:\nedges:\n"),
        Note=[{"id": one, "text": "river", "share": 0.5} for one in long],
        cites=[{"from": long[0], "to": long[1]}],
    )
    ran = run_in(root, ["publish", "--to", url, "--json"])
    assert ran.code == 0, ran.err
    assert run_in(root, ["publish", "--to", url, "--verify"]).code == 0
    for args in (["list", "Note"], ["list", "cites"], ["find", "Note", "river"]):
        here, there = run_in(root, args), run_in(root, [*args, "--backend", url])
        assert there.code == 0, there.err
        assert [json.loads(one)["_etag"] for one in here.out.splitlines()] == [
            json.loads(one)["_etag"] for one in there.out.splitlines()
        ]


def test_a_command_says_what_the_database_says_in_its_own_words(tmp_path: Path, url: str) -> None:
    root = made(tmp_path, CONFIG, Note=[{"id": "a", "text": "river"}])
    assert run_in(root, ["publish", "--to", url]).code == 0
    from duckkb.app.published_knowledge import PublishedKnowledgeBase
    from duckkb.operations.lifecycle import OpenOptions

    kb = PublishedKnowledgeBase(root, OpenOptions(backend=url, command=True))
    with psycopg.connect(url, autocommit=True) as other:
        other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = current_database()"
        )
    with pytest.raises(Unavailable) as caught:
        kb.find("Note", "river", mode="match")
    assert caught.value.code == "E_DATABASE"
    kb.close()


@pytest.mark.parametrize(
    "cut",
    ["u:se/cret@localhost/db", "u:12/cret@localhost/db", "u:se?cret@localhost/db", "u:12?cret@h/db", "u:12#cret@h/db"],
)
def test_a_password_that_cuts_the_address_is_not_said(cut: str) -> None:
    with pytest.raises(UsageError) as caught:
        Address.parse(f"postgresql://{cut}")
    assert caught.value.code == "E_URL" and "cret" not in str(caught.value) and "12" not in str(caught.value)
    assert Address.parse("postgresql://h1:5432,h2:5433/db").name == "h1:5432,h2:5433/db#base"


def test_a_base_is_published_with_a_password_in_the_url_which_nothing_says(tmp_path: Path, url: str) -> None:
    """As `table` takes it; who is let in with it, and who is not."""
    base, name = made(tmp_path, CONFIG, Note=[{"id": "n1", "text": "river"}]), urlsplit(url).path.strip("/")
    url, wrong = shared().tcp(name), "hidden%20word"
    none = run_in(base, ["find", "Note", "river", "--backend", url])
    published = run_in(base, ["publish", "--to", url])
    assert (none.code, published.code) == (1, 0) and "nothing is published" in none.err, none.err + published.err
    found = run_in(base, ["find", "Note", "river", "--backend", url])
    refused = run_in(base, ["publish", "--to", shared().tcp(name, password=wrong)])
    assert (found.code, refused.code) == (0, 1) and "password authentication failed" in refused.err, (
        found.err + refused.err
    )
    said = "".join(ran.out + ran.err for ran in (none, published, found, refused))
    with pytest.raises(Unavailable) as told:
        app.publish(base, to=shared().tcp(name, password=wrong))
    said += "".join(traceback.format_exception(told.value)) + repr(Address.parse(url))
    assert PASSWORD not in said and wrong not in said and "hidden word" not in said
