"""Random merge histories in real git repositories, judged by an oracle: no clean edit is lost, nothing stands twice, and no
side wins in silence; with `duckkb merge`, with git and the driver, with `resolve` alone, and as a forge merges."""

import subprocess
from pathlib import Path

import pytest

from duckkb import config
from duckkb.store.cache_dirs import Place
from duckkb.store.stored_rows import BaseStore
from tests.conftest import git
from tests.harness.campaign import Campaign
from tests.harness.merges import oracle
from tests.harness.merges.oracle import Expected, State
from tests.harness.merges.world import BRANCHES, World

HISTORIES = (16, 400)
SHARDS = 4
RULES = {"E_DUP_IDENTITY", "E_DUP_ID", "E_DANGLING_EDGE", "E_AMBIGUOUS_END", "E_CARDINALITY", "E_SCHEMA"}


@pytest.mark.parametrize("shard", range(SHARDS))
def test_no_way_of_merging_loses_an_edit_or_decides_in_silence(campaign: Campaign, tmp_path: Path, shard: int) -> None:
    for number in range(shard, campaign.pick(*HISTORIES), SHARDS):
        chance = campaign.random(f"merge history {number}")
        world = World(tmp_path / str(number), chance, campaign.figures)
        try:
            _live(world)
        except AssertionError as error:
            raise AssertionError(f"history {number} of seed {campaign.seed}: {error}") from error
        campaign.count("merge histories")


def _live(world: World) -> None:
    steps = [world.chance.choice(["merge", "merge", "cross", "cross", "pick", "rebase"]) for _ in range(2)]
    for step in steps:
        for branch in BRANCHES:
            for _ in range(world.chance.randint(1, 2)):
                world.grow(branch)
        into, other = world.chance.sample(BRANCHES, 2)
        world.figures[f"steps: {step}"] += 1
        {"merge": _merge, "cross": _cross, "pick": _pick, "rebase": _rebase}[step](world, into, other)


def _merge(world: World, into: str, other: str) -> None:
    _merge_commit(world, into, world.head(other))


def _cross(world: World, into: str, other: str) -> None:
    """Each takes the other's tip; what comes next has two merge bases."""
    tips = {branch: world.head(branch) for branch in BRANCHES}
    _merge_commit(world, into, tips[other])
    _merge_commit(world, other, tips[into])


def _merge_commit(world: World, into: str, other: str) -> None:
    git(world.root, "checkout", "-q", into)
    start = world.head()
    base = git(world.root, "merge-base", start, other).strip()
    if base in (start, other):
        assert world.duckkb("merge", other).code in (0, 1)
        assert world.commits.of(world.head()) == world.commits.of(start if base == other else other)
        return
    expected = oracle.merge(world.commits.base(start, other), world.commits.of(start), world.commits.of(other))
    wanted = expected.settled(world.choose)
    world.figures["conflicts"] += len(expected.names())
    _as_a_forge(world, start, other, expected)
    _by_the_driver(world, start, other, expected, wanted)
    _by_resolve_alone(world, start, other, expected, wanted)
    _by_duckkb(world, other, expected, wanted)
    world.figures["merges"] += 1


def _by_duckkb(world: World, other: str, expected: Expected, wanted: State) -> None:
    notes = BaseStore(Place.locate(config.read_environment(world.root).cache_home, world.root))
    world.figures["merges that know a commit in which nothing is broken"] += notes.note("whole") is not None
    notes.close()
    done = world.duckkb("merge", other, "--json")
    assert {one["name"] for one in done.line["conflicts"]} == expected.names(), done.err
    is_refused = expected.torn or bool(done.line["counts"]["violations"])
    assert (done.line["action"], done.code) == (("stopped", 1) if is_refused else ("merged", 0))
    if not expected.torn:
        checked = world.duckkb("check", "--format", "jsonl")
        assert broken(done.line["violations"]) == broken(checked.lines), checked.err
    if expected.torn:
        world.settle(expected)
    if is_refused:
        git(world.root, "commit", "-q", "--no-edit")
    world.must_be(wanted, "duckkb merge")
    assert len(git(world.root, "rev-list", "--parents", "-n1", "HEAD").split()) == 3


def broken(findings: list[dict[str, str]]) -> list[tuple[str, ...]]:
    """Those of rules about several records or fields, which `check` finds by looking at every record."""
    told = [one for one in findings if one["code"] in RULES]
    return sorted((one["code"], one["type"], one["identity"], one["message"]) for one in told)


def _by_resolve_alone(world: World, start: str, other: str, expected: Expected, wanted: State) -> None:
    _git_goes_on(world, "merge", "-q", "--no-commit", "--no-ff", other)
    world.settle(expected)
    world.must_be(wanted, "before the commit")
    git(world.root, "commit", "-q", "--no-edit")
    world.must_be(wanted, "resolve alone")
    git(world.root, "reset", "-q", "--hard", start)


def _by_the_driver(world: World, start: str, other: str, expected: Expected, wanted: State) -> None:
    world.use_driver(True)
    is_clean = _git_goes_on(world, "merge", "-q", "--no-edit", other)
    if is_clean:
        _same_or_a_finding(world, expected, wanted, "the driver")
    else:
        world.settle(expected)
        git(world.root, "commit", "-q", "--no-edit")
        world.must_be(wanted, "the driver")
    git(world.root, "reset", "-q", "--hard", start)
    world.use_driver(False)


def _as_a_forge(world: World, start: str, other: str, expected: Expected) -> None:
    """A bare repository merges trees; what is clean there must be right, or `check` of the merge finds something."""
    bare = world.root.parent / f"{world.root.name}.git"
    if not bare.exists():
        git(world.root, "clone", "-q", "--bare", "--shared", ".", str(bare))
    done = subprocess.run(
        ["git", "-C", str(bare), "merge-tree", "--write-tree", "--name-only", start, other],
        capture_output=True,
        text=True,
        check=False,
        env=None,
    )
    if done.returncode == 1 and "CONFLICT" in done.stdout:
        world.figures["forge: conflicts"] += 1
        return
    assert done.returncode == 0, done.stderr
    tree = done.stdout.split()[0]
    made = git(bare, "commit-tree", "-m", "forge", "-p", start, "-p", other, tree).strip()
    git(world.root, "fetch", "-q", str(bare), f"+{made}:refs/forge/made")
    git(world.root, "checkout", "-q", made)
    _same_or_a_finding(world, expected, expected.clean, "a forge")
    git(world.root, "checkout", "-q", "-")
    git(world.root, "reset", "-q", "--hard", start)


def _same_or_a_finding(world: World, expected: Expected, wanted: State, way: str) -> None:
    if not expected.torn and world.is_as(wanted):
        world.figures[f"{way}: the same"] += 1
        return
    world.figures[f"{way}: a finding"] += 1
    assert world.has_finding(), (way, expected.names())


def _pick(world: World, into: str, other: str) -> None:
    """One commit of the other branch, not its tip alone."""
    told = git(world.root, "rev-list", "--no-merges", f"{into}..{other}").split()
    commit = world.chance.choice(told)
    git(world.root, "checkout", "-q", into)
    start = world.head()
    before = world.commits.of(world.head(f"{commit}^"))
    expected = oracle.merge(before, world.commits.of(start), world.commits.of(commit))
    wanted = expected.settled(world.choose)
    for way in ("resolve alone", "the driver"):
        if way == "the driver":
            world.use_driver(True)
        told = ["-x"] if way == "resolve alone" else []
        is_clean = _git_goes_on(world, "cherry-pick", *told, "--allow-empty", "--keep-redundant-commits", commit)
        if is_clean and told:
            _same_or_a_finding(world, expected, wanted, f"picks by {way}")
        elif is_clean:
            _lines_or_records(world, expected, wanted, f"picks by {way}")
        else:
            world.settle(expected)
            world.must_be(wanted, "before the commit")
            git(world.root, "commit", "-q", "--allow-empty", "--no-edit")
            world.must_be(wanted, f"a pick by {way}")
        git(world.root, "reset", "-q", "--hard", start)
    world.use_driver(False)
    world.commit(wanted, "as picked")


def _rebase(world: World, into: str, other: str) -> None:
    """The commits of one branch on top of the other, each merged as a pick is."""
    world.use_driver(True)
    git(world.root, "checkout", "-q", into)
    _git_goes_on(world, "rebase", "-q", other)
    steps = 0
    while (world.root / ".git/rebase-merge").exists():
        steps += 1
        assert steps < 30, "the rebase does not end"
        commit = world.head("REBASE_HEAD")
        ours = world.commits.of(world.head())
        expected = oracle.merge(world.commits.of(world.head(f"{commit}^")), ours, world.commits.of(commit))
        world.settle(expected)
        world.must_be(expected.settled(world.choose), "before the commit")
        goes_on = "--skip" if expected.settled(world.choose) == ours else "--continue"
        _git_goes_on(world, "-c", "core.editor=true", "rebase", goes_on)
        world.figures["stops of rebases"] += 1
    world.use_driver(False)
    if world.figures and _stands_twice(world):
        world.figures["rebases: a finding"] += 1
        assert world.has_finding()
        git(world.root, "reset", "-q", "--hard", other)


def _stands_twice(world: World) -> bool:
    try:
        oracle.parse(world.parts())
    except AssertionError:
        return True
    return False


def _lines_or_records(world: World, expected: Expected, wanted: State, way: str) -> None:
    """What git found clean by lines, with nobody to ask: right, a finding, or (a record deleted here and renamed there)
    what the other side has of it."""
    if not expected.torn and world.is_as(wanted):
        world.figures[f"{way}: the same"] += 1
    elif world.has_finding():
        world.figures[f"{way}: a finding"] += 1
    else:
        world.figures[f"{way}: by lines"] += 1
        held = oracle.parse(world.parts())
        for key, rec in expected.clean.items():
            assert held.get(key) is not None and held[key].fields == rec.fields, way


def _git_goes_on(world: World, *args: str) -> bool:
    """Whether git did it without stopping for a conflict."""
    done = subprocess.run(["git", "-C", str(world.root), *args], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), (args, done.stderr)
    return done.returncode == 0
