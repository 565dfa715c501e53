"""blame, log, find --provenance, citations, and reading at a revision: held against what each commit is known to have done."""

import json
import random
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import duckkb
from duckkb.review.history import Citation, parse
from duckkb.types.errors import Refused, UsageError
from tests.conftest import NOTES, Ran, commit, git, make_base, run_in

TIME = "2026-11-01T00:00:00.000000Z"
PARTS = [f"data/nodes/note/20261101/part_{number:03d}.jsonl" for number in (1, 2, 3)]
FIELDS = ("size", "text", "title")
Notes = dict[str, dict[str, str]]
Known = dict[str, dict[str, str]]
"""By record and field, or by record, a commit."""


def _write(root: Path, notes: Notes, places: dict[str, str]) -> None:
    """The notes as canonical lines, each in the part that it is placed in."""
    for part in PARTS:
        own = sorted(name for name in notes if places[name] == part)
        lines = [_line(name, notes[name]) for name in own]
        (root / part).parent.mkdir(parents=True, exist_ok=True)
        (root / part).write_text("".join(lines), "utf-8") if lines else (root / part).unlink(missing_ok=True)


def _line(name: str, fields: dict[str, str]) -> str:
    number = 1_000 + int(name.removeprefix("n"))
    values = {"__id": number, "id": name, **dict(sorted(fields.items())), "__created_at": TIME, "__updated_at": TIME}
    return json.dumps(values, ensure_ascii=False, separators=(",", ":")) + "\n"


class _Story:
    """A history made by chance, with an account of which commit gave each field its value and each line its form."""

    def __init__(self, root: Path, seed: int) -> None:
        self.root, self._chance, self._count = root, random.Random(seed), 0
        self.notes: Notes = {}
        self.places: dict[str, str] = {}
        self.fields: Known = {}
        self.lines: dict[str, str] = {}

    def step(self) -> None:
        """Some changes and moves, in one commit."""
        names = self._chance.sample([f"n{number}" for number in range(1, 7)], self._chance.randint(1, 3))
        changed = [self._change(name) for name in names]
        for name in self._chance.sample(sorted(self.notes), min(2, len(self.notes))):
            self.places[name] = self._chance.choice(PARTS)
        _write(self.root, self.notes, self.places)
        self.seal(changed)

    def _change(self, name: str) -> tuple[str, str | None]:
        self._count += 1
        if name in self.notes and self._chance.random() < 0.15:
            del self.notes[name], self.fields[name], self.lines[name], self.places[name]
            return name, None
        field = self._chance.choice(FIELDS)
        if name not in self.notes:
            self.places.setdefault(name, self._chance.choice(PARTS))
            self.notes[name] = {}
            self.fields[name] = {"id": "", "__created_at": "", "__updated_at": ""}
        self.notes[name][field] = f"{field} {self._count} 备注"
        return name, field

    def seal(self, changed: list[tuple[str, str | None]]) -> None:
        commit(self.root, f"step {self._count}")
        head = git(self.root, "rev-parse", "HEAD").strip()
        for name, field in changed:
            if name in self.notes and field in self.notes[name]:
                self.fields[name][field] = head
                self.lines[name] = head
                self.fields[name] = {one: known or head for one, known in self.fields[name].items()}


@pytest.fixture(scope="module", params=range(2))
def story(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> _Story:
    root = make_base(tmp_path_factory.mktemp("story") / "kb", NOTES)
    commit(root, "a base without records")
    made = _Story(root, request.param)
    for _ in range(12):
        made.step()
    return made


def _blamed(root: Path, name: str) -> dict[str, str]:
    with duckkb.open(root) as kb:
        return {one.name: one.origin.by.commit if one.origin.by else "" for one in kb.provenance.blame("Note", name)}


def test_each_field_is_from_the_commit_that_gave_it_its_value(story: _Story) -> None:
    assert {name: _blamed(story.root, name) for name in story.notes} == story.fields


def test_each_hit_is_from_the_commit_that_gave_its_line_its_form(story: _Story) -> None:
    with duckkb.open(story.root) as kb:
        hits = kb.find("Note", where="1 = 1", limit=100)
        found = {hit.identity: origin for hit, origin in zip(hits, kb.provenance.list_origins(hits), strict=True)}
    assert {name: one.by.commit for name, one in found.items() if one.by} == story.lines
    for name, one in found.items():
        line = (story.root / one.path).read_text("utf-8").splitlines()[one.line_no - 1]
        assert json.loads(line)["id"] == name


def test_the_log_of_a_record_replays_to_what_it_is(story: _Story) -> None:
    with duckkb.open(story.root) as kb:
        for name, fields in story.notes.items():
            values: dict[str, str] = {}
            for entry in reversed(kb.provenance.log("Note", name)):
                for one in entry.change.fields:
                    assert one.before == (
                        json.dumps(values[one.name], ensure_ascii=False) if one.name in values else None
                    )
                    values.pop(one.name, None)
                    values |= {one.name: json.loads(one.after)} if one.after is not None else {}
                values = {} if entry.change.op == "delete" else values
            assert {key: value for key, value in values.items() if not key.startswith("__") and key != "id"} == fields


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two notes, committed."""
    root = make_base(tmp_path_factory.mktemp("two") / "kb", NOTES)
    _write(root, {"n1": {"title": "one", "text": "storms"}, "n2": {"title": "two"}}, {"n1": PARTS[0], "n2": PARTS[1]})
    commit(root, "first")
    return root


@pytest.fixture
def two(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "kb")
    return tmp_path / "kb"


def _head(root: Path) -> str:
    return git(root, "rev-parse", "HEAD").strip()


def _lines(ran: Ran) -> dict[str, str | None]:
    assert ran.code == 0, ran.err
    return {one["field"]: one["commit"] for one in ran.lines}


def test_a_merge_that_joins_both_sides_is_the_origin_of_the_line_and_of_no_field(two: Path) -> None:
    places = {"n1": PARTS[0], "n2": PARTS[1]}
    first = _head(two)
    git(two, "switch", "-q", "-c", "other")
    _write(two, {"n1": {"title": "theirs", "text": "storms"}, "n2": {"title": "two"}}, places)
    commit(two, "theirs")
    theirs = _head(two)
    git(two, "switch", "-q", "main")
    _write(two, {"n1": {"title": "one", "text": "ours"}, "n2": {"title": "two"}}, places)
    commit(two, "ours")
    ours = _head(two)
    git(two, "merge", "-q", "--no-commit", "-s", "ours", "other")
    _write(two, {"n1": {"title": "theirs", "text": "ours"}, "n2": {"title": "two"}}, places)
    commit(two, "both")
    found = _lines(run_in(two, ["blame", "Note", "n1"]))
    assert (found["title"], found["text"], found["id"]) == (theirs, ours, first)
    hit = run_in(two, ["find", "Note", "-w", "id = 'n1'", "--provenance"]).line
    assert hit["_provenance"]["commit"] == _head(two)
    told = [one["summary"] for one in run_in(two, ["log", "Note", "n1"]).lines]
    assert told[0] == "both" and set(told[1:3]) == {"ours", "theirs"} and told[3:] == ["first"]


def test_what_is_not_committed_says_so(two: Path) -> None:
    first = _head(two)
    assert run_in(two, ["put", "Note", '{"id":"n1","title":"new"}', "--merge"]).code == 0
    assert run_in(two, ["put", "Note", '{"id":"n3","title":"fresh"}']).code == 0
    found = _lines(run_in(two, ["blame", "Note", "n1"]))
    assert (found["title"], found["text"]) == (None, first)
    hits = {
        one["id"]: one["_provenance"] for one in run_in(two, ["find", "Note", "-w", "id >= ''", "--provenance"]).lines
    }
    assert [hits[name].get("uncommitted", False) for name in ("n1", "n2", "n3")] == [True, False, True]
    assert hits["n1"]["commit"] is None and hits["n1"]["uri"] == "duckkb://Note/n1"
    log = run_in(two, ["log", "Note", "n1"]).lines
    assert [one["commit"] for one in log] == [None, first]
    assert log[0]["fields"]["title"] == {"before": "one", "after": "new"}


def test_a_shallow_clone_says_where_its_history_ends(two: Path, tmp_path: Path) -> None:
    _write(two, {"n1": {"title": "other", "text": "storms"}, "n2": {"title": "two"}}, {"n1": PARTS[0], "n2": PARTS[1]})
    commit(two, "second")
    git(tmp_path, "clone", "-q", "--depth", "1", two.as_uri(), "shallow")
    hit = run_in(tmp_path / "shallow", ["find", "Note", "-w", "id = 'n2'", "--provenance"]).line
    assert hit["_provenance"]["shallow"] is True and hit["_provenance"]["commit"] == _head(two)
    assert "shallow" not in run_in(two, ["find", "Note", "-w", "id = 'n2'", "--provenance"]).line["_provenance"]


def test_the_log_of_a_former_name_ends_with_the_rename(two: Path) -> None:
    assert run_in(two, ["rename", "Note", "n1", "renamed"]).code == 0
    commit(two, "rename")
    by_old, by_new = (run_in(two, ["log", "Note", name]).lines for name in ("n1", "renamed"))
    assert by_old == by_new and not any(one.get("uncommitted") or one["op"] == "delete" for one in by_old)


def test_a_deleted_and_a_renamed_record_keep_their_history(two: Path) -> None:
    assert run_in(two, ["rename", "Note", "n1", "renamed"]).code == 0
    commit(two, "rename")
    assert run_in(two, ["delete", "Note", "renamed"]).code == 0
    commit(two, "delete")
    told = run_in(two, ["log", "Note", "renamed"]).lines
    assert [(one["summary"], one["op"]) for one in told] == [
        ("delete", "delete"),
        ("rename", "rename"),
        ("first", "insert"),
    ]
    assert told[1]["was"] == "n1"
    assert run_in(two, ["log", "Note", "n1"]).lines == told
    assert run_in(two, ["log", "Note", "never"]).code == 1


def test_a_base_is_read_as_it_was_with_the_types_it_had(two: Path) -> None:
    config = (two / "config.yaml").read_text("utf-8")
    (two / "config.yaml").write_text(
        config.replace("  Note:\n    table: note", "  Page:\n    table: note").replace("Note", "Page")
    )
    _write(two, {"n1": {"title": "later"}}, {"n1": PARTS[0]})
    commit(two, "later")
    (two / PARTS[0]).write_text("this is no record\n", "utf-8")
    before = sorted(path for path in two.rglob("*") if ".git" not in path.parts)
    assert run_in(two, ["get", "Note", "n1", "--at", "HEAD~1"]).line["text"] == "storms"
    assert [one["id"] for one in run_in(two, ["list", "Note", "--at", "HEAD~1"]).lines] == ["n1", "n2"]
    assert [one["id"] for one in run_in(two, ["find", "Note", "storm", "-m", "--at", "HEAD~1"]).lines] == ["n1"]
    assert run_in(two, ["get", "Page", "n1", "--at", "HEAD"]).line["title"] == "later"
    gone = run_in(two, ["get", "Page", "n2", "--at", "main", "--json"])
    assert (gone.code, gone.error["suggestion"]) == (1, "duckkb list Page --at main")
    assert run_in(two, ["get", "Page", "n2", "--at", "nowhere", "--json"]).error["code"] == "E_REVISION"
    kept = [path for path in before if ".duckkb" not in path.parts]
    assert [path for path in sorted(two.rglob("*")) if not {".git", ".duckkb"} & set(path.parts)] == kept
    assert git(two, "status", "--porcelain").strip().endswith(PARTS[0])


def test_a_past_base_cannot_be_written(two: Path) -> None:
    with duckkb.open(two, at="HEAD") as kb:
        for write in (lambda: kb.put("Note", {"id": "n9"}), lambda: kb.delete("Note", "n1"), kb.index_refresh):
            with pytest.raises(Refused):
                write()
    assert git(two, "status", "--porcelain", "data") == ""


def test_a_citation_brings_back_the_record_as_it_was(two: Path) -> None:
    uri = run_in(two, ["find", "Note", "storm", "-m", "--provenance"]).line["_provenance"]["uri"]
    assert uri == f"duckkb://Note/n1@{_head(two)[:16]}#text/0"
    assert run_in(two, ["put", "Note", '{"id":"n1","title":"new"}']).code == 0
    commit(two, "second")
    found = run_in(two, ["get", uri]).line
    assert (found["title"], found["_chunk"]) == ("one", {"field": "text", "chunk_seq": 0, "text": "storms"})
    assert run_in(two, ["get", "duckkb://Note/n1"]).line["title"] == "new"
    assert run_in(two, ["get", "duckkb://Note/n1", "--at", "HEAD~1"]).line["title"] == "one"
    assert run_in(two, ["get", uri.replace("text/0", "text/7")]).code == 1
    for wrong in (["get", "duckkb://Note"], ["get", uri, "n1"], ["get", uri, "--at", "HEAD"], ["get", "Note"]):
        assert run_in(two, wrong).code == 2, wrong


def test_composite_identities_and_edges_are_cited(two: Path) -> None:
    assert run_in(two, ["put", "Person", '{"country":"a/b@c#d","number":7,"name":"沈括"}']).code == 0
    assert run_in(two, ["put", "cites", '{"from":"n1","to":"n2","why":"because"}']).code == 0
    commit(two)
    for kind, where in (("Person", "number = 7"), ("cites", "why = 'because'")):
        hit = run_in(two, ["find", kind, "-w", where, "--provenance", "--fields", "+__id"]).line
        assert run_in(two, ["get", hit["_provenance"]["uri"]]).line["__id"] == hit["__id"]


def test_a_line_with_provenance_can_be_put_back(two: Path) -> None:
    line = run_in(two, ["find", "Note", "-w", "id = 'n1'", "--provenance"]).out
    assert run_in(two, ["put", "Note"], stdin=line).line["unchanged"] == 1


def test_without_git_there_is_no_provenance(two: Path) -> None:
    shutil.rmtree(two / ".git")
    ran = run_in(two, ["find", "Note", "-w", "id >= ''", "--provenance", "--json"])
    assert (ran.code, ran.error["code"]) == (1, "E_GIT")
    assert run_in(two, ["get", "Note", "n1", "--at", "HEAD", "--json"]).error["code"] == "E_GIT"


def test_before_the_first_commit_nothing_is_committed(tmp_path: Path) -> None:
    root = make_base(tmp_path / "kb", NOTES)
    _write(root, {"n1": {"title": "one"}}, {"n1": PARTS[0]})
    assert set(_lines(run_in(root, ["blame", "Note", "n1"])).values()) == {None}
    assert [one["op"] for one in run_in(root, ["log", "Note", "n1"]).lines] == ["insert"]


@given(st.text(min_size=1), st.text(min_size=1), st.none() | st.text(min_size=1), st.integers(0, 10**8))
def test_every_citation_is_read_back(name: str, identity: str, field: str | None, seq: int) -> None:
    if any("\ud800" <= letter <= "\udfff" for text in (name, identity, field or "") for letter in text):
        return
    given_one = Citation(name, identity, "1f0c2a9", field, seq if field else 0)
    assert parse(str(given_one)) == given_one
    assert str(given_one).isascii()


@pytest.mark.parametrize(
    "text", ["duckkb://", "duckkb:T/x", "duckkb://T/x@", "duckkb://T/%zz", "duckkb://T/x#f", "duckkb://T/%ff"]
)
def test_what_is_no_citation_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse(text)


def test_a_commit_before_1970_has_no_date_rather_than_what_git_was_asked(notes: Path) -> None:
    with duckkb.open(notes) as kb:
        kb.put("Note", {"id": "a", "text": "old"})
    git(notes, "add", "-A")
    early = "t <t@example.org> -1 +0000"
    told = f"tree {git(notes, 'write-tree').strip()}\nauthor {early}\ncommitter {early}\n\nearly\n"
    (notes / "commit").write_text(told, "utf-8")
    made = git(notes, "hash-object", "-t", "commit", "-w", "--literally", "commit").strip()
    git(notes, "update-ref", "HEAD", made)
    assert {line["date"] for line in run_in(notes, ["blame", "Note", "a"]).lines} == {""}


def test_a_hit_is_cited_by_its_chunk_where_its_commit_cuts_it_so(tmp_path: Path) -> None:
    root = make_base(tmp_path / "kb", NOTES)
    words = " ".join(f"word{number} in the pool." for number in range(300))
    with duckkb.open(root) as kb:
        kb.put("Note", {"id": "long", "title": "pool", "text": words})
    commit(root)

    def cited() -> tuple[str, str, object]:
        with duckkb.open(root) as kb:
            (hit,) = kb.find("Note", "word250").hits
            (origin,) = kb.provenance.list_origins([hit])
            assert hit.chunk is not None
            return (
                origin.uri,
                hit.chunk.text,
                kb.provenance.resolve_citation(parse(origin.uri)).get("_chunk", {}).get("text"),
            )

    uri, text, found = cited()
    assert "#text/" in uri and text == found
    (root / "config.yaml").write_text(NOTES.replace("model: none", "model: none, chunk_size: 200"), "utf-8")
    for _ in range(2):  # changed, and committed: the record is of the commit before
        other, text, found = cited()
        assert other == uri.partition("#")[0] and found is None and len(text) <= 200
        commit(root)
