"""Tenants and tokens, through the real process; what a door asks (`BearerTokens`) is held against what the verbs said and did."""

import hashlib
import hmac
import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import pytest

from duckkb.cli.tenant_commands import tenant_command
from duckkb.server import authentication, tenant_changes
from duckkb.server.authentication import BearerTokens, Denial, bearer
from duckkb.server.tenant_files import TenantFiles
from duckkb.types.errors import UsageError
from duckkb.types.request_context import Caller
from tests.conftest import NOTES, Ran, make_base, run_in

Tenant = Callable[..., Ran]
_GIVEN = "given-by-the-operator-and-never-guessed"


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder of the test's own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("DUCKKB_MCP_TOKEN", raising=False)
    return tmp_path / "state/duckkb"


@pytest.fixture
def tenant(state: Path, notes: Path) -> Tenant:
    """Run `duckkb tenant` in the base of notes."""
    return lambda *args, **env: run_in(notes, ["tenant", *args, "--json"], env=env)


def token_of(ran: Ran) -> str:
    assert ran.code == 0, ran.err
    return str(ran.line["token"])


def refused(ran: Ran) -> str:
    assert ran.code and not ran.out, (ran.out, ran.err)
    return str(ran.error["code"])


def status_of(tokens: BearerTokens, token: str | None) -> int:
    found = tokens.authenticate(token)
    return 200 if isinstance(found, Caller) else found.status


def everything_below(*folders: Path) -> dict[Path, bytes]:
    found = [path for folder in folders for path in folder.rglob("*")]
    return {path: path.read_bytes() for path in found if path.is_file() and not path.is_symlink()}


def mend(ran: Ran, state: Path) -> str:
    """Run the first command that an error names, as a person would."""
    said: str = ran.error["suggestion"]
    command = said.split("`")[1]
    subprocess.run(["bash", "-c", command], check=True, cwd=state)
    return command


def test_kx_10_a_token_is_printed_once_and_only_its_hash_is_kept(tenant: Tenant, notes: Path, state: Path) -> None:
    ran = tenant("add", "ann", "Note", "--role", "editor", "--name", "Ann Ö.")
    token = token_of(ran)
    assert len(bytes.fromhex(token)) == 32 and token == token.lower()
    first = {"tenant": "ann", "name": "Ann Ö.", "role": "editor", "types": ["Note"], "disabled": False}
    assert first.items() <= ran.line.items() and ran.line["rotated"] is None
    second = token_of(tenant("rotate", "ann"))
    hashed = hashlib.sha256(second.encode()).hexdigest()
    told = [
        tenant(*args)
        for args in (["show", "ann"], ["list"], ["status", "--audit", "9"], ["add", "ann"], ["disable", "ann"])
    ]
    for text in (ran.err, *(one.out + one.err for one in told)):
        assert token not in text and second not in text and hashed not in text
    files = everything_below(state.parent, notes, Path(os.environ["XDG_CACHE_HOME"]))
    assert not [path for path, data in files.items() if token.encode() in data or second.encode() in data]
    assert [path.parent for path, data in files.items() if hashed.encode() in data] == [state / "tenants"]
    assert stat.S_IMODE((state / "tenants").stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in (state / "tenants").iterdir()} == {0o600}
    params = [param for one in tenant_command.commands.values() for param in one.params]
    assert not [one for one in params if "token" in str(one.name) or (isinstance(one, click.Option) and one.hidden)]


def test_kx_10_roles_and_types_become_the_caller(tenant: Tenant, notes: Path) -> None:
    """A token of each kind, in each state, and what no token is: 401 without a well-formed one, 403 for who is unknown."""
    ann = token_of(tenant("add", "ann", "note", "Person"))
    eve = token_of(tenant("add", "eve", "--role", "editor"))
    boss = token_of(tenant("add", "boss", "--role", "admin"))
    tokens = BearerTokens(notes)
    assert tokens.authenticate(ann) == Caller("ann", "viewer", frozenset({"Note", "Person"}))
    assert tokens.authenticate(eve) == Caller("eve", "editor", frozenset())
    assert tokens.authenticate(boss) == Caller("boss", "admin", None)
    none = [
        None,
        "",
        " ",
        "a b",
        f"{ann}\n",
        f" {ann}",
        "ä" * 64,
        "\x00",
        "x" * 600,
        *map(bearer, ("Bearer", "Basic x", "", ann)),
    ]
    assert {status_of(tokens, one) for one in none} == {401}
    unknown = [
        ann[:-1],
        ann.upper() if ann.upper() != ann else "A",
        "0" * 64,
        hashlib.sha256(ann.encode()).hexdigest(),
        "wrong",
    ]
    assert tenant("disable", "eve").line["disabled"] is True
    denials = [one for one in map(tokens.authenticate, (*unknown, eve)) if isinstance(one, Denial)]
    assert len(denials) == len(unknown) + 1 and denials[-1].tenant == "eve", "the log may know"
    assert {(one.status, one.code, one.message) for one in denials} == {(403, "E_DENIED", denials[0].message)}
    assert bearer(f"bearer {ann}") == ann


def test_kx_10_without_a_tenant_there_is_one_server_token(
    tenant: Tenant, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = Caller("server", "admin", None)
    tokens = BearerTokens(notes)
    place = Path(str(tokens.prepare()))
    made = place.read_text().strip()
    assert len(bytes.fromhex(made)) == 32 and stat.S_IMODE(place.stat().st_mode) == 0o600
    assert tenant("status").line["server_token"] == str(place) == BearerTokens(notes).prepare()
    assert tokens.authenticate(made) == BearerTokens(notes).authenticate(made) == admin
    assert status_of(tokens, "0" * 64) == 403
    place.unlink()
    assert status_of(tokens, made) == 403 and tokens.authenticate(place.read_text().strip()) == admin
    made = place.read_text().strip()
    monkeypatch.setenv("DUCKKB_MCP_TOKEN", _GIVEN)
    given = BearerTokens(notes)
    assert given.prepare() == "DUCKKB_MCP_TOKEN" == tenant("status").line["server_token"]
    assert given.authenticate(_GIVEN) == admin and status_of(given, made) == 403
    ann = token_of(tenant("add", "ann"))
    assert [status_of(one, token) for one, token in ((tokens, made), (given, _GIVEN))] == [403, 403]
    assert tokens.prepare() is None and tenant("status").line["server_token"] is None
    assert tenant("disable", "ann").code == 0 and status_of(tokens, made) == 403, "a disabled one is one too"
    assert tenant("remove", "ann").code == 0
    assert (status_of(tokens, ann), tokens.authenticate(made)) == (403, admin)
    for refused in ("two words that are together long enough", "Q", "Q" * 31):
        monkeypatch.setenv("DUCKKB_MCP_TOKEN", refused)
        with pytest.raises(UsageError, match="DUCKKB_MCP_TOKEN holds") as raised:
            BearerTokens(notes)
        assert refused not in raised.value.message and "openssl rand -hex 32" in str(raised.value.suggestion)


def test_an_expired_token_is_refused_with_its_own_reason_until_it_is_rotated(tenant: Tenant, notes: Path) -> None:
    now = datetime(2999, 1, 1, tzinfo=UTC)
    tokens = BearerTokens(notes, clock=lambda: now)
    ran = tenant("add", "ann", "Note", "--expires", "2999-06-01")
    assert ran.line["expires"] == "2999-06-01T00:00:00Z" and isinstance(tokens.authenticate(token_of(ran)), Caller)
    lasting = token_of(tenant("add", "bob"))
    now = datetime(2999, 6, 1, tzinfo=UTC)
    denial = tokens.authenticate(token_of(ran))
    assert isinstance(denial, Denial) and (denial.status, denial.code, denial.tenant) == (403, "E_EXPIRED", "ann")
    listed = [each["expires"] for each in tenant("list").line["tenants"]]
    assert listed == ["2999-06-01T00:00:00Z", None] and isinstance(tokens.authenticate(lasting), Caller)
    for when in ("2020-01-01", "0d", "soon", "99999999d"):
        assert refused(tenant("rotate", "ann", "--expires", when)) == "E_USAGE"
    assert tenant("rotate", "ann").line["expires"] == "2999-06-01T00:00:00Z"
    assert isinstance(tokens.authenticate(token_of(tenant("rotate", "ann", "--expires", "never"))), Caller)
    assert tenant("add", "cy", "--expires", "90d").line["expires"] > tenant("show", "bob").line["made"]


def test_kx_10_what_is_changed_holds_from_the_next_request_on(
    tenant: Tenant, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a process that has long been asking; and however quickly changes follow each other."""
    tokens = BearerTokens(notes)
    first = token_of(tenant("add", "ann", "Note"))
    other = token_of(tenant("add", "bob", "Person"))
    for args, types in ((["grant", "ann", "Person"], {"Note", "Person"}), (["revoke", "ann", "Note"], {"Person"})):
        assert tenant(*args).line["types"] == sorted(types)
        assert tokens.authenticate(first) == Caller("ann", "viewer", frozenset(types))
    second = token_of(tenant("rotate", "ann"))
    assert [status_of(tokens, one) for one in (first, second, other)] == [403, 200, 200]
    for verb, status in (("disable", 403), ("enable", 200), ("remove", 403)):
        assert tenant(verb, "ann").code == 0
        assert [status_of(tokens, one) for one in (second, other)] == [status, 200]
    now = (time.time_ns(),) * 8
    with monkeypatch.context() as patch:  # a file system whose times are too coarse to tell two changes apart
        patch.setattr(TenantFiles, "facts", lambda *_: now)
        for disabled, status in ((True, 403), (False, 200)):
            tenant_changes.switch(notes, "bob", disabled=disabled)
            assert status_of(tokens, other) == status
    for number in range(150):
        tenant_changes.switch(notes, "bob", disabled=number % 2 == 0)
        assert status_of(tokens, other) == (403 if number % 2 == 0 else 200), number
        token = tenant_changes.rotate(notes, "bob")["token"]
        assert (status_of(tokens, other), status_of(tokens, token)) == (403, 403 if number % 2 == 0 else 200), number
        other = token


def test_kx_10_files_are_read_once_while_they_stay_and_every_hash_is_compared(
    tenant: Tenant, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = [token_of(tenant("add", f"t{number}")) for number in range(4)]
    file = Path(tenant("status").line["file"])
    compared: list[Any] = []
    real_open = os.open

    def comparing(*pair: Any) -> bool:
        compared.append(pair)
        return bool(pair[0] == pair[1])

    def opening(path: Any, *rest: Any, **more: Any) -> int:
        opened.append(str(path))
        return real_open(path, *rest, **more)

    monkeypatch.setattr(time, "time_ns", lambda: file.stat().st_mtime_ns + 3_000_000_000)
    monkeypatch.setattr(hmac, "compare_digest", comparing)
    tokens = BearerTokens(notes)
    opened: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", opening)
        for token in (*held, "unknown", held[0]):
            compared.clear()
            tokens.authenticate(token)
            assert len(compared) == 4
    assert opened == [str(file)]


@pytest.mark.long
def test_kx_10_types_are_those_of_the_base(tenant: Tenant, notes: Path) -> None:
    assert tenant("add", "ann").line["types"] == []
    for args in (["add", "bob", "Nots"], ["grant", "ann", "Person", "Nots"], ["revoke", "ann", "Nots"]):
        ran = tenant(*args)
        assert refused(ran) == "E_UNKNOWN_TYPE" and "did you mean Note?" in ran.error["error"]
    assert [one["tenant"] for one in tenant("list").line["tenants"]] == ["ann"], "nothing came of them"
    keys = ("edges", "edges_not_granted", "edges_without_ends", "undeletable", "missing")
    steps: list[tuple[list[str], tuple[list[str], ...]]] = [
        (["grant", "ann", "about"], ([], [], ["about"], [], [])),
        (["grant", "ann", "note"], ([], ["cites"], ["about"], ["Note"], [])),
        (["grant", "ann", "PERSON"], (["about"], ["cites", "wrote"], [], ["Note", "Person"], [])),
        (["grant", "ann", "cites", "wrote"], (["about", "cites", "wrote"], [], [], [], [])),
        (["revoke", "ann", "Cites"], (["about", "wrote"], ["cites"], [], ["Note"], [])),
        (["revoke", "ann", "about", "wrote"], ([], ["about", "cites", "wrote"], [], ["Note", "Person"], [])),
    ]
    for args, told in steps:
        ran, shown = tenant(*args), tenant("show", "ann").line
        assert (ran.code, tuple(shown[key] for key in keys)) == (0, told), args
        assert (" ".join(told[1]) in ran.err) or args[0] == "revoke", "what is left to grant is said"
    assert refused(tenant("add", "boss", "Note", "--role", "admin")) == "E_USAGE"
    assert tenant("add", "boss", "--role", "admin").line["types"] is None
    assert refused(tenant("grant", "boss", "Note")) == "E_USAGE" == refused(tenant("revoke", "boss", "Note"))
    (notes / "config.yaml").write_text("global: {embedding_model: none}\n", "utf-8")
    assert len(tenant("show", "boss").line["edges"]) == 0
    shown = tenant("show", "ann").line
    assert (shown["missing"], shown["edges"]) == (["Note", "Person"], [])
    assert tenant("revoke", "ann", "Note").line["types"] == ["Person"], "also what the base has no longer"
    (notes / "config.yaml").write_text("nodes: [", "utf-8")
    assert tenant("revoke", "ann", "Person").code == tenant("disable", "ann").code == tenant("rotate", "boss").code == 0
    counted = tenant("status").line
    assert (counted["tenants"], counted["disabled"], counted["roles"]) == (2, 1, {"viewer": 1, "editor": 0, "admin": 1})


def test_kx_10_ids_and_who_may_decide(tenant: Tenant) -> None:
    token = token_of(tenant("add", "ann"))
    assert refused(tenant("add", "Ann")) == "E_EXISTS"
    for id in (token, "", "a b", "-x", "x" * 64, "../x", "é"):
        for args in (["add", "--", id], ["show", "--", id], ["rotate", "--", id]):
            ran = tenant(*args)
            assert ran.code and token not in ran.err, args
    ran = tenant("disable", "anm")
    assert refused(ran) == "E_TENANT" and "did you mean ann?" in ran.error["error"]
    assert tenant("add", "bob", "--name", "two\nlines").code == 2
    for args in (["add", "eve"], ["rotate", "ann"], ["enable", "ann"], ["remove", "ann"]):
        assert refused(tenant(*args, DUCKKB_SANDBOX="1")) == "E_REFUSED"
    assert [one["tenant"] for one in tenant("list", DUCKKB_SANDBOX="1").line["tenants"]] == ["ann"]


def test_kx_10_each_base_has_its_own_tenants_by_its_real_place(tenant: Tenant, notes: Path, tmp_path: Path) -> None:
    ann = token_of(tenant("add", "ann", "Note"))
    other = make_base(tmp_path / "other", NOTES)
    (tmp_path / "way").symlink_to(notes)
    assert [status_of(BearerTokens(root), ann) for root in (notes, tmp_path / "way", other)] == [200, 200, 403]
    bob = token_of(run_in(other, ["tenant", "add", "bob", "--json"]))
    assert (status_of(BearerTokens(other), bob), status_of(BearerTokens(notes), bob)) == (200, 403)
    inside = run_in(notes, ["tenant", "add", "eve", "--json"], env={"XDG_STATE_HOME": str(notes / "brought")})
    assert refused(inside) == "E_IO" and not (notes / "brought").exists()


def test_kx_10_twenty_processes_at_once_lose_nothing(tenant: Tenant, notes: Path) -> None:
    old = {f"old{number}": token_of(tenant("add", f"old{number}")) for number in range(10)}
    calls = [["rotate", id] for id in old] + [["add", f"new{number}", "Note"] for number in range(10)]
    with ThreadPoolExecutor(20) as pool:
        ran = list(pool.map(lambda args: tenant(*args), calls))
    tokens, given = BearerTokens(notes), [token_of(one) for one in ran]
    assert [tokens.authenticate(one).tenant for one in given] == [args[1] for args in calls]
    assert {status_of(tokens, one) for one in old.values()} == {403}
    assert len(tenant("list").line["tenants"]) == 20
    decided = tenant("status", "--audit", "20").line["decisions"]
    assert sorted((one["action"], one["tenant"]) for one in decided) == sorted(
        (f"tenant {one[0]}", one[1]) for one in calls
    )


KILLED = """
import hashlib, json, os, sys
from pathlib import Path
from duckkb.cli.main import run
from tests.harness.faults.hooks import Hooks, Plan
state, file, args = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
before = file.read_bytes()
run(["tenant", "list"])
for action in ("die", "tear"):
    for at in range(100):
        child = os.fork()
        if not child:
            Hooks(Plan(str(state), at, action)).install()
            os._exit(run(args))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        after = file.read_bytes()
        drafts = len([one for one in file.parent.iterdir() if one.suffix == ".tmp"])
        print(json.dumps([action, code, after.decode(), drafts]), file=sys.stderr)
        file.write_bytes(before)
        if code == 0:
            break
"""


def test_kx_10_kill_9_leaves_the_old_file_or_the_new_one(tenant: Tenant, notes: Path, state: Path) -> None:
    ann = token_of(tenant("add", "ann", "Note"))
    file = Path(tenant("status").line["file"])
    before = file.read_text()
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-c", KILLED, str(state), str(file), "tenant", "disable", "ann", "--kb", str(notes)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root)
    seen = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("[")]
    found = {(code, text) for _, code, text, _ in seen}
    new = next(text for code, text in found if code == 0)
    assert '"disabled": true' in new and {text for _, text in found} == {before, new} and (137, new) in found
    assert sum(code == 137 for _, code, _, _ in seen) > 8 and any(drafts for *_, drafts in seen)
    assert seen[-1][3] == 0, "the next change took away what the killed ones left"
    assert status_of(BearerTokens(notes), ann) == 200 and tenant("rotate", "ann").code == 0


def linked(path: Path) -> None:
    kept = path.with_name("kept")
    path.rename(kept)
    path.symlink_to(kept)


def pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file, 0o600)


def folder(file: Path) -> None:
    file.unlink()
    file.mkdir(0o700)


HARM: dict[str, Callable[[Path], None]] = {
    "others may read": lambda file: file.chmod(0o640),
    "others may write": lambda file: file.chmod(0o602),
    "open folder": lambda file: file.parent.chmod(0o755),
    "open state folder": lambda file: file.parent.parent.chmod(0o777),
    "link": linked,
    "linked folder": lambda file: linked(file.parent),
    "hard link": lambda file: file.with_suffix(".twin").hardlink_to(file),
    "pipe": pipe,
    "folder": folder,
    "another user": lambda file: os.chown(file, 12345, -1),
}


@pytest.mark.long
@pytest.mark.parametrize("harm", HARM)
@pytest.mark.parametrize("kept", ["tenants", "token"])
def test_kx_10_what_others_could_have_changed_lets_nobody_in(
    tenant: Tenant, notes: Path, state: Path, harm: str, kept: str
) -> None:
    if harm == "another user" and os.getuid():
        pytest.skip("only root gives files away")
    if kept == "tenants":
        token = token_of(tenant("add", "ann"))
        file = Path(tenant("status").line["file"])
    else:
        file = Path(str(BearerTokens(notes).prepare()))
        token = file.read_text().strip()
    tokens = BearerTokens(notes)
    assert status_of(tokens, token) == 200
    HARM[harm](file)
    denied = tokens.authenticate(token)
    assert not isinstance(denied, Caller) and denied.status == 503 and denied.problem is not None
    assert str(state) not in denied.message and denied.problem.code in ("E_TENANTS", "E_IO")
    assert "`" in denied.problem.suggestion and str(state) in denied.problem.message
    if kept == "tenants":
        for args in (["list"], ["add", "eve"], ["enable", "ann"], ["status"]):
            assert refused(tenant(*args)) == denied.problem.code, args
    if "may" in harm or "open" in harm:
        assert subprocess.run(["bash", "-c", denied.problem.suggestion.split("`")[1]], check=True).returncode == 0
        assert status_of(tokens, token) == 200


@pytest.mark.long
def test_kx_10_a_damaged_file_is_named_with_the_command_that_mends_it(tenant: Tenant, notes: Path, state: Path) -> None:
    held = {id: token_of(tenant("add", id, "Note")) for id in ("ann", "bob", "eve")}
    file = Path(tenant("status").line["file"])
    sound = file.read_bytes()
    head, ann, bob, eve = sound.splitlines(keepends=True)
    cases = [
        (head + ann + bob[: len(bob) // 2], 3),
        (head + ann + b"{}\n" + eve, 3),
        (head + ann + bob.replace(b"viewer", b"owner") + eve, 3),
        (head + ann + bob.replace(b'["Note"]', b'"Note"') + eve, 3),
        (head + ann + b"\0" * 40 + b"\n" + eve, 3),
        (head + ann + b"\xff\n" + eve, 3),
        (head + ann + ann + eve, 3),
        (head + ann + bob.replace(b'"bob"', b'"rob"') + bob + eve, 4),
        (head + ann + b"[" * 100_000 + b"\n" + eve, 3),
        (ann + bob, 1),
        (head.replace(b'"format": 1', b'"format": 2') + ann, 1),
        (head.replace(b"/kb", b"/xx") + ann, 1),
        (b"", 1),
    ]
    tokens = BearerTokens(notes)
    for data, number in cases:
        file.write_bytes(data)
        file.chmod(0o600)
        ran = tenant("list")
        assert refused(ran) == "E_TENANTS" and f"{file}:{number}: " in ran.error["error"], (data, ran.err)
        assert not any(hashlib.sha256(one.encode()).hexdigest() in ran.err for one in held.values())
        assert {status_of(tokens, one) for one in held.values()} == {503}
        command = mend(ran, state)
        left = [one["tenant"] for one in tenant("list").line["tenants"]]
        assert left == (
            [] if number == 1 else [one for one in ("ann", "eve", "rob") if one.encode() in file.read_bytes()]
        ), command
        assert "ann" in left or number == 1
        Path(f"{file}.refused").unlink(missing_ok=True)
    file.write_bytes(sound)
    file.chmod(0o600)
    assert {status_of(tokens, one) for one in held.values()} == {200}


def test_kx_10_decisions_are_in_the_audit_log_and_tokens_are_not(
    tenant: Tenant, notes: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = token_of(tenant("add", "ann"))
    tokens = BearerTokens(notes)
    tokens.audit("ann", "find", "allowed", "7f3a")
    tokens.audit("", "query", "E_TOKEN")
    for at in range(4):
        tokens.audit(*[token if one == at else "x" for one in range(4)])
    told = tenant("status", "--audit", "6").line
    keys = ("tenant", "action", "outcome", "request")
    assert [tuple(one[key] for key in keys) for one in told["decisions"]] == [
        ("ann", "find", "allowed", "7f3a"),
        ("", "query", "E_TOKEN", ""),
        ("?", "x", "x", "x"),
        ("x", "?", "x", "x"),
        ("x", "x", "?", "x"),
        ("x", "x", "x", "?"),
    ]
    assert all(one["base"] == str(notes.resolve()) and one["time"].endswith("Z") for one in told["decisions"])
    log = Path(told["audit"])
    assert stat.S_IMODE(log.stat().st_mode) == 0o600 and log.is_relative_to(state)
    assert token not in log.read_text()
    monkeypatch.setattr(authentication, "_MOST_BYTES", 2_000)
    for number in range(60):
        tokens.audit("ann", "list", "allowed", f"{number}")
    files = sorted(log.parent.glob("*.audit.jsonl*"))
    longest = max(len(line) for path in files for line in path.read_bytes().splitlines(keepends=True))
    assert len(files) in (4, 5), "a file that was full a moment ago is an older one, and no new one is there yet"
    assert all(path.stat().st_size <= 2_000 + longest for path in files)
    with ThreadPoolExecutor(8) as pool:  # who waits too long for the lock leaves a file longer, and loses nothing
        list(pool.map(lambda number: tokens.audit("ann", "get", "allowed", f"{number}"), range(20)))
    assert {stat.S_IMODE(path.stat().st_mode) for path in log.parent.glob("*.audit.jsonl*")} == {0o600}
    kept = tenant("status", "--audit", "20").line["decisions"]
    assert sorted(int(decision["request"]) for decision in kept) == list(range(20)), "older ones lie in older files"
    assert {decision["action"] for decision in kept} == {"get"}
    log.unlink(missing_ok=True)
    log.symlink_to(notes / "config.yaml")
    assert refused(tenant("disable", "ann")) == "E_IO"
    assert tenant("show", "ann").line["disabled"] is False, "what cannot be written down is not done"
