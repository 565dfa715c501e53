"""A repository that came from elsewhere runs nothing, whatever its configuration, attributes, hooks or files say."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.campaign import Campaign
from tests.harness.forks import Forks, weakened
from tests.harness.hostile.places import TRAPS, Trap, honest_base, laid, stepped_into
from tests.harness.hostile.run import Runner, Said, every_line

ANSWERS = ("find", "get", "list", "export", "sql", "schema", "graph")
"""Verbs whose answers a trap must not change."""
NEED_GIT = (
    *("diff", "check", "review", "blame", "log", "impact", "propose", "merge", "resolve", "branches", "compact", "git"),
    *("apply", "init"),
)
"""Verbs that refuse or do something else where there is no repository, and so do those that ask of a revision."""
ASK_GIT = ("--at", "--provenance", "duckkb://Note/a@topic#text/0")
EXPORTED = "exported.jsonl"
"""The file that one line writes and others read."""


WAITS = {"FIFOs and devices": ("compact", "branches")}
"""Where git itself waits for a branch that is a FIFO, until our limit of a minute."""
Judged = Callable[[tuple[str, ...]], bool]


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return honest_base(tmp_path_factory.mktemp("honest") / "kb")


@pytest.fixture(scope="module")
def copy(honest: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(honest, tmp_path_factory.mktemp("copy") / "kb"))


def _is_possible(trap: Trap) -> bool:
    return trap.name != "another user's" or (hasattr(os, "geteuid") and os.geteuid() == 0)


def _chosen(campaign: Campaign) -> list[Trap]:
    possible = [trap for trap in TRAPS if _is_possible(trap)]
    if campaign.full:
        return possible
    always = [
        trap for trap in possible if trap.name.startswith(("fsmonitor", "partial clone over a", "variables", "FIFO"))
    ]
    rest = [trap for trap in possible if trap not in always]
    return [*always, *campaign.random("traps").sample(rest, 3)]


def test_no_verb_runs_a_command_of_the_repository(
    campaign: Campaign, honest: Path, copy: Path, runner: Runner, tmp_path: Path
) -> None:
    lines = every_line()[: campaign.pick(12, 1000)]
    expected = runner.run(copy, lines)
    for trap in _chosen(campaign):
        base, trace, env = laid(trap, honest, tmp_path)
        said = runner.run(base, [line for line in lines if line[0] not in WAITS.get(trap.name, ())], env)
        assert not trace.exists(), f"{trap.name}: {trace.read_text('utf-8')}"
        campaign.count("hostile repositories")
        campaign.count("hostile repositories x command lines", len(said))
        if not trap.name.startswith("partial"):  # those have no data
            judged = _judged(trap, is_weaker=_attributes(base) != _attributes(honest))
            assert _codes(said, judged) == _codes(expected, judged), trap.name
            assert _answers(said, judged) == _answers(expected, judged), trap.name


def _attributes(base: Path) -> bytes | None:
    path = base / ".gitattributes"
    return path.read_bytes() if path.is_file() else None


def _judged(trap: Trap, *, is_weaker: bool) -> Judged:
    """The lines whose outcome a trap must not change. That attributes which keep parts as they are were taken away is a
    finding of a change, so that what judges one may end otherwise where they are weaker."""
    if trap.name == "a bare repository itself":
        # Nothing is written among the files of a repository, which this folder is.
        return lambda line: line[0] not in ("doctor", *NEED_GIT) and not {*line}.intersection((*ASK_GIT, EXPORTED))
    left_out = ("doctor", *WAITS.get(trap.name, ()))
    judges_changes = (("check", "--since"), ("review",))
    return lambda line: line[0] not in left_out and not (is_weaker and line[:2] in judges_changes)


def _codes(said: list[Said], judged: Judged) -> list[tuple[tuple[str, ...], int]]:
    return [(one.line, one.code) for one in said if judged(one.line)]


def _answers(said: list[Said], judged: Judged) -> list[tuple[tuple[str, ...], str]]:
    """What was said before the first change, in which times differ."""
    first = next(at for at, one in enumerate(said) if one.line[0] == "merge")
    return [(one.line, one.out) for one in said[:first] if one.line[0] in ANSWERS and judged(one.line)]


def test_the_traps_work_on_git_as_it_is(campaign: Campaign, honest: Path, tmp_path: Path) -> None:
    """The negative control: a canary that nothing wakes would prove nothing."""
    for trap in _chosen(campaign):
        if trap.steps:
            base, trace, env = laid(trap, honest, tmp_path)
            stepped_into(trap, base, {**trap.env, **env})
            assert trace.exists(), f"{trap.name}: the trap does not work"
            campaign.count("hostile repositories that do run a command under plain git")


def test_without_the_hardening_canaries_run(honest: Path, tmp_path: Path) -> None:
    hardening = "def make_hardened_variables(settings: Mapping[str, str]) -> dict[str, str]:\n"
    sources = weakened(tmp_path / "weak", {"storage/git_process": (hardening, f"{hardening}    return {{}}\n")})
    ran = []
    with Forks(sources) as warm:
        weak = Runner(warm)
        for trap in TRAPS:
            if trap.name.startswith(("partial", "variables")):
                base, trace, env = laid(trap, honest, tmp_path)
                weak.run(base, [("put", "Note", '{"id":"x"}', "--dry-run"), ("check",), ("status",)], env)
                ran += [trap.name] * trace.exists()
    assert len(ran) >= 4, ran
