"""Fuzzing of the command line: whatever is typed, the exit code is a documented one and the files are as they should be."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from duckkb.cli.main import run
from tests.harness.campaign import Campaign
from tests.harness.fuzz.cli import CliTarget, Command, Entry, run_here
from tests.harness.fuzz.loop import Run, hold


def test_command_lines_that_grow_from_valid_ones_change_nothing_or_what_their_receipt_says(
    campaign: Campaign, tmp_path: Path
) -> None:
    target = CliTarget(tmp_path)
    hold(campaign, target, campaign.pick(300, 6_000))
    campaign.count("fuzzed commands that wrote", target.writes)
    assert target.writes


# Each once did harm, or stands for a kind that would.
FIXED = [
    Command(("--json", "config")), Command(("--json",)), Command(()), Command(("",)), Command(("--kb", "", "list", "Note")),
    Command(("find", "Note", "-s"), b"\xff\xfe"), Command(("sql",), b"\xff"), Command(("sql", "SELECT '\udcff'")),
    Command(("find", "Note", "\udcff*", "-m")), Command(("rename", "Note", "n1", "\udcff")), Command(("put", "Note"), b""),
    Command(("put", "Note"), b'{"id":"n1"'), Command(("put", "Note", '{"id":"n1","size":1e400}')), Command(("put", "Note", "[]")),
    Command(("put", "Note", '{"id":"' + "x" * 1_025 + '"}')), Command(("put", "Note", '{"id":"\\ud800"}')),
    Command(("put", "Note", "[" * 100_000)), Command(("put", "Note", '{"id":"a","size":' + "9" * 5_000 + "}")),
    Command(("list", "Note", "-l", "9" * 5_000)), Command(("list", "Note", "--lock-timeout", "nan")),
    Command(("list", "Note", "--lock-timeout", "1e999")), Command(("graph", "neighbors", "Note", "n1", "--depth", "9" * 30)),
    Command(("find", "Note", "a " * 500_000, "-m")), Command(("find", "Note", "-w", "(" * 5_000)), Command(("find", "Note", "-w", "a" * 10**6)),
    Command(("get", "cites", "[" * 100_000)), Command(("get", "Person", '["CHE",' + "1" * 5_000 + "]")), Command(("import", "Note", ".")),
    Command(("import", "Note", "config.yaml")), Command(("export", "Note", "-o", ".")), Command(("init", "config.yaml")), Command(("init", ".")),
    Command(("list", "-files")), Command(("embed", "--batch", '["a",1]')), Command(("delete", "Note", "-rf")), Command(("import", "Note", "-"), b"\xff\xfe\n{}"),
]  # fmt: skip


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> CliTarget:
    return CliTarget(tmp_path_factory.mktemp("fixed"))


@pytest.mark.parametrize("command", FIXED, ids=lambda command: repr(command)[:60])
@pytest.mark.parametrize("as_json", [False, True], ids=["words", "json"])
def test_fixed_command_lines_do_no_harm(target: CliTarget, command: Command, as_json: bool) -> None:
    args = ("--json", *command.args) if as_json and command.args[:1] != ("--json",) else command.args
    target.check(Command(args, command.stdin))


def _touching(args: Sequence[str]) -> int:
    """A command line that leaves a mark when it only reads."""
    if "list" in args:
        Path("data/nodes/mark").write_bytes(b"")
    return run(args)


def _forgetful(args: Sequence[str]) -> int:
    """A command line that says that it wrote, after taking the last line of a part away."""
    code = run(args)
    if "put" in args and code == 0:
        part = next(Path("data/nodes/note").rglob("*.jsonl"))
        part.write_bytes(b"".join(part.read_bytes().splitlines(keepends=True)[:-1]))
    return code


def _stumbling(args: Sequence[str]) -> int:
    if "find" in args:
        raise KeyError("planted")
    return run(args)


@pytest.mark.parametrize(
    "entry", [_touching, _forgetful, _stumbling], ids=["leaves a mark", "loses a record", "stumbles"]
)
def test_control_a_harmful_command_line_is_found_out(campaign: Campaign, tmp_path: Path, entry: Entry) -> None:
    outcome = Run[Command](enough=1).fuzz(CliTarget(tmp_path, entry), campaign.random("control"), 400)
    assert outcome.finds


def test_the_ground_of_the_fuzzing_is_a_sound_base(tmp_path: Path) -> None:
    target = CliTarget(tmp_path)
    checked = run_here(target.root, Command(("check", "--fail-on", "warning")))
    assert checked.code == 0, checked
