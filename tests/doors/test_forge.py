"""`init --github`: what it writes is linted, and its shell steps run here, in clones of a repository of their own."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from duckkb.operations import github_setup, lifecycle
from tests.conftest import NOTES, ROOT, commit, git, make_base, run_in
from tests.doors.shell import commands
from tests.harness.forge_stage import ADDRESS, GH

WORKFLOWS = ("check", "comment", "index", "review")
COMMIT = "c" * 40


def _by_git(url: str) -> str:
    """What pip notes of a package that it installed from a repository (PEP 610)."""
    return json.dumps({"url": url, "vcs_info": {"vcs": "git", "commit_id": COMMIT}})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a base in a folder of it, and its workflows."""
    top = tmp_path_factory.mktemp("forge") / "work"
    make_base(top / "kb", NOTES)
    (top / "kb/.git").rename(top / ".git")
    assert run_in(top / "kb", ["put", "Note", '{"id":"n1","title":"storm","text":"备注"}']).code == 0
    assert run_in(top / "kb", ["put", "Note", '{"id":"n2","title":"tide"}']).code == 0
    assert run_in(top / "kb", ["put", "cites", '{"from":"n1","to":"n2"}']).code == 0
    assert run_in(top / "kb", ["init", "--github"]).code == 0
    questions = "questions: [{question: storm, type: Note, expected: {n1: 1}}]\n"
    (top / "kb/ontology").mkdir()
    (top / "kb/ontology/questions.yaml").write_text(questions, "utf-8")
    commit(top)
    return top


@pytest.fixture
def hosted(made: Path, tmp_path: Path) -> Path:
    """A copy of it, and a bare repository that it is pushed to."""
    top = tmp_path / "work"
    shutil.copytree(made, top)
    git(tmp_path, "clone", "-q", "--bare", "work", "origin.git")
    git(top, "remote", "add", "origin", str(tmp_path / "origin.git"))
    return top


def _workflow(top: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((top / f".github/workflows/duckkb-{name}.yml").read_text("utf-8"))
    return found


def _steps(top: Path, name: str) -> Iterator[dict[str, Any]]:
    (job,) = _workflow(top, name)["jobs"].values()
    yield from job["steps"]


class _Runner:
    """Runs the shell steps of a workflow as the forge would, in a clone; what installs duckkb is left out."""

    def __init__(self, top: Path, folder: Path) -> None:
        self.top, self.temp = top, folder / "runner"
        self.temp.mkdir()
        self.summary, self.output = self.temp / "summary.md", self.temp / "output"
        self.output.touch()

    def step(
        self, workflow: str, name: str, known: dict[str, str] | None = None, **env: str
    ) -> "subprocess.CompletedProcess[str]":
        (step,) = [one for one in _steps(self.top, workflow) if one.get("name") == name]
        values = {key: (known or {}).get(value, value) for key, value in step.get("env", {}).items()}
        assert not [value for value in values.values() if "${{" in value], "an expression that the test does not know"
        assert "${{" not in step["run"], "values reach a script through the environment alone"
        place = self.top / "kb" if workflow != "comment" else self.top
        around = {
            **os.environ,
            "PATH": f"{commands(self.temp)}{os.pathsep}{os.environ['PATH']}",
            "PYTHONUTF8": "1",
            "PAUSE": "0",
        }
        around |= {
            "RUNNER_TEMP": str(self.temp),
            "GITHUB_STEP_SUMMARY": str(self.summary),
            "GITHUB_OUTPUT": str(self.output),
        }
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        return subprocess.run(
            command,
            cwd=place,
            env=around | values | env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def passes(self, workflow: str, *names: str, **env: str) -> None:
        for name in names:
            done = self.step(workflow, name, **env)
            assert done.returncode == 0, (name, done.stdout, done.stderr)


@pytest.fixture
def runner(hosted: Path, tmp_path: Path) -> _Runner:
    return _Runner(hosted, tmp_path)


def _lint(tool: str, *args: str, at: Path) -> int:
    done = subprocess.run(
        [str(Path(sys.executable).parent / tool), *args], cwd=at, capture_output=True, text=True, check=False
    )
    return done.returncode


def test_the_workflows_pass_the_linters_wherever_the_base_lies(tmp_path: Path) -> None:
    for place in (".", 'a kb\'s "place" @KB@'):
        top = tmp_path / str(len(place))
        (top / place).mkdir(parents=True)
        git(top, "init", "-q", "-b", "trunk/1")
        assert run_in(top / place, ["init", "--github"]).code == 0
        assert _lint("actionlint", at=top) == 0
        assert _lint("zizmor", "--offline", "--no-progress", ".", at=top) == 0
        assert _workflow(top, "index")["jobs"]["index"]["defaults"]["run"]["working-directory"] == place
        assert _workflow(top, "index")["jobs"]["index"]["env"]["BRANCH"] == "trunk/1"
        assert len(yaml.safe_load((top / ".pre-commit-config.yaml").read_text("utf-8"))["repos"][0]["hooks"]) == 2
    assert _lint("actionlint", at=ROOT) == 0
    assert _lint("zizmor", "--offline", "--no-progress", ".github", at=ROOT) == 0


def test_the_linters_find_what_is_wrong(hosted: Path) -> None:
    path = hosted / ".github/workflows/duckkb-review.yml"
    good = path.read_text("utf-8")
    path.write_text(good.replace("timeout-minutes", "timeout-hours"), "utf-8")
    assert _lint("actionlint", at=hosted) != 0
    path.write_text(
        good.replace("echo '<!-- duckkb-review -->'", "echo '${{ github.event.pull_request.title }}'"), "utf-8"
    )
    assert _lint("zizmor", "--offline", "--no-progress", ".", at=hosted) != 0


def test_nothing_of_a_pull_request_runs_with_the_right_to_write(hosted: Path) -> None:
    for name in WORKFLOWS:
        found = _workflow(hosted, name)
        ((_, job),) = found["jobs"].items()
        events = found[True]  # YAML 1.1 reads `on` so
        assert "pull_request_target" not in events and found["permissions"] == {}
        if "pull_request" in events:
            assert job["permissions"] == {"contents": "read"}
        if "workflow_run" in events:
            assert not [step for step in job["steps"] if "checkout" in step.get("uses", "")]
        assert all("secrets." not in json.dumps(step) for step in job["steps"]) or name == "index"


def test_files_that_are_there_stay_as_they_are(hosted: Path) -> None:
    path = hosted / ".github/workflows/duckkb-check.yml"
    path.write_text("name: my own\n", "utf-8")
    again = run_in(hosted / "kb", ["init", "--github"])
    assert (again.code, again.out) == (0, "") and "left unchanged: .github/workflows/duckkb-check.yml" in again.err
    assert path.read_text("utf-8") == "name: my own\n"


def test_links_and_sandboxes_are_respected(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    top = tmp_path / "work"
    (top / "kb").mkdir(parents=True)
    git(top, "init", "-q", "-b", "main")
    (top / ".github").symlink_to(outside)
    assert run_in(top / "kb", ["init", "--github"]).code == 2
    (top / ".github").unlink()
    inside = {"DUCKKB_SANDBOX": "1", "DUCKKB_KB": str(top / "kb")}
    assert run_in(top / "kb", ["init", "--github"], env=inside).code == 2
    assert not list(outside.iterdir()) and not (top / ".github").exists()


def test_the_check_passes_and_fails(runner: _Runner) -> None:
    runner.passes("check", "Check every record", "Check the form of the files")
    (part, *_) = sorted(runner.top.glob("kb/data/nodes/note/*/*.jsonl"))
    part.write_text(part.read_text("utf-8") + "<<<<<<< ours\n", "utf-8")
    assert runner.step("check", "Check every record").returncode == 1


def test_what_the_review_left_behind_is_one_comment_that_follows_the_pull_request(
    runner: _Runner, tmp_path: Path
) -> None:
    left = runner.temp / "duckkb-review"
    left.mkdir()
    comment = "<!-- duckkb-review -->\n**passed**\n"
    (left / "comment.md").write_text(comment, "utf-8")
    (left / "number").write_text("7\n", "utf-8")
    log = _comment(runner, "abc", tmp_path)
    assert [line.split()[:3] for line in log] == [
        ["api", "repos/t/kb/pulls/7", "--jq"],
        ["api", "--paginate", "repos/t/kb/issues/7/comments"],
        ["api", "--method", "POST"],
    ]
    assert (tmp_path / "posted").read_text("utf-8") == comment
    (left / "comment.md").write_text(comment.replace("passed", "diff could not run"), "utf-8")
    assert _comment(runner, "abc", tmp_path)[-1].startswith("api --method PATCH repos/t/kb/issues/comments/4711 ")
    assert "could not run" in (tmp_path / "posted").read_text("utf-8")


def test_where_nothing_of_the_base_differs_a_comment_is_replaced_and_none_is_made(
    runner: _Runner, tmp_path: Path
) -> None:
    left = runner.temp / "duckkb-review"
    left.mkdir()
    (left / "comment.md").write_text("<!-- duckkb-review -->\n**nothing of the base differs**\n", "utf-8")
    (left / "number").write_text("7\n", "utf-8")
    _comment(runner, "abc", tmp_path)
    assert not (tmp_path / "posted").exists()
    (tmp_path / "posted").write_text("**1 error**, as it was before", "utf-8")
    _comment(runner, "abc", tmp_path)
    assert "nothing of the base differs" in (tmp_path / "posted").read_text("utf-8")


def _installed(top: Path) -> set[str]:
    runs = (step["run"] for name in ("check", "index", "review") for step in _steps(top, name) if "run" in step)
    return {shlex.split(run)[-1] for run in runs if "pip install" in run}


@pytest.mark.parametrize(
    ("note", "address"),
    [
        (_by_git("https://ann:hunter2@example.org/t/duckkb.git"), f"git+https://example.org/t/duckkb.git@{COMMIT}"),
        (_by_git("ssh://git@example.org/t/duckkb.git"), f"git+ssh://git@example.org/t/duckkb.git@{COMMIT}"),
        (_by_git("file:///srv/duckkb"), f"git+https://HOST/OWNER/duckkb@{COMMIT}"),
        (_by_git("https://localhost/duckkb"), f"git+https://HOST/OWNER/duckkb@{COMMIT}"),
    ],
)
def test_a_workflow_installs_the_commit_that_this_copy_is_and_no_address_of_this_machine(
    note: str, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(github_setup, "distribution", lambda _: SimpleNamespace(read_text=lambda _: note))
    lifecycle.init(tmp_path, github=True)
    assert _installed(tmp_path) == {f"duckkb @ {address}", f"duckkb[local] @ {address}"}
    assert "hunter2" not in "".join(path.read_text("utf-8") for path in (tmp_path / ".github").rglob("*.yml"))


def test_where_no_address_is_known_a_step_of_its_own_fails_until_it_is_filled_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        github_setup, "distribution", lambda _: SimpleNamespace(read_text=lambda _: _by_git("file:///srv/d"))
    )
    git(tmp_path, "init", "-q", "-b", "main")
    made = lifecycle.init(tmp_path, github=True)
    assert "duckkb init --github --install git+https://HOST/OWNER/duckkb@COMMIT" in made.notes[0]
    for name in ("check", "index", "review"):
        names = [step.get("name") for step in _steps(tmp_path, name)]
        assert names.index("Say where duckkb is installed from") < names.index("Install duckkb")
    (tmp_path / "runner").mkdir()
    (tmp_path / "kb").mkdir()
    unfilled = _Runner(tmp_path, tmp_path / "runner").step("check", "Say where duckkb is installed from")
    assert unfilled.returncode == 1 and "--install git+https://HOST/OWNER/duckkb@" in unfilled.stdout
    assert _lint("actionlint", at=tmp_path) == 0
    (tmp_path / ".github/workflows/duckkb-review.yml").write_text("name: my own\n", "utf-8")
    filled = run_in(tmp_path, ["init", "--github", "--install", ADDRESS])
    assert (filled.code, "left unchanged: .github/workflows/duckkb-review.yml" in filled.err) == (0, True)
    run_in(tmp_path, ["init", "--github", "--install", ADDRESS])
    for name in ("check", "index"):
        text = (tmp_path / f".github/workflows/duckkb-{name}.yml").read_text("utf-8")
        assert "HOST" not in text and ADDRESS in text


def test_an_address_is_asked_for_that_others_reach_and_that_names_no_package_of_an_index(tmp_path: Path) -> None:
    assert run_in(tmp_path, ["init", "--github", "--install", ADDRESS]).code == 0
    assert _installed(tmp_path) == {f"duckkb @ {ADDRESS}", f"duckkb[local] @ {ADDRESS}"}
    wrong = ("duckkb", "==0.1.0", "file:///srv/duckkb", "git+file:///srv/duckkb", "git+https://ann:secret@x/y@1")
    for install in (*wrong, "git+https://x/$(id)", "==1 --index-url x", "git+https://x/'"):
        ran = run_in(tmp_path, ["init", "--github", "--install", install])
        assert (ran.code, "--install" in ran.err) == (2, True), install
    assert run_in(tmp_path, ["init", "--install", ADDRESS]).code == 2


def test_what_pip_cannot_install_or_what_may_move_is_no_address(tmp_path: Path) -> None:
    page, branch = "https://github.com/acme/duckkb", "git+ssh://git@github.com/acme/duckkb@main"
    placeholder = "git+https://HOST/OWNER/duckkb@COMMIT"
    again = run_in(tmp_path, ["init", "--github", "--install", placeholder]).err.partition("try: ")[2]
    assert placeholder not in again and ("git -C " in again or "--install git+" in again)
    for install, why in ((page, "is a page"), (f"git+{page}", "names no commit"), (branch, "names no commit")):
        ran = run_in(tmp_path, ["init", "--github", "--install", install])
        assert ran.code == 2 and why in ran.err
        assert f"--install {'git+' if install == page else ''}{install.removesuffix('@main')}@COMMIT" in ran.err
    assert not (tmp_path / "config.yaml").exists()
    for install in (f"git+{page}@{COMMIT[:7]}", "https://x.test/duckkb-0.1.0-py3-none-any.whl#sha256=0a"):
        assert run_in(tmp_path, ["init", "--github", "--install", install]).code == 0
        assert _installed(tmp_path) == {f"duckkb @ {install}", f"duckkb[local] @ {install}"}


def test_another_address_takes_the_place_of_the_one_that_is_there_and_of_nothing_else(tmp_path: Path) -> None:
    assert run_in(tmp_path, ["init", "--github", "--install", ADDRESS]).code == 0
    edited = tmp_path / ".github/workflows/duckkb-check.yml"
    edited.write_text(edited.read_text("utf-8") + "# ours\n", "utf-8")
    before = edited.read_text("utf-8")
    other = f"git+https://x.test/o/duckkb@{COMMIT}"
    ran = run_in(tmp_path, ["init", "--github", "--install", other])
    assert [line["file"].rpartition("-")[2] for line in ran.lines] == ["check.yml", "review.yml", "index.yml"]
    assert edited.read_text("utf-8") == before.replace(ADDRESS, other)
    assert _installed(tmp_path) == {f"duckkb @ {other}", f"duckkb[local] @ {other}"}
    assert run_in(tmp_path, ["init", "--github"]).lines == []
    assert _installed(tmp_path) == {f"duckkb @ {other}", f"duckkb[local] @ {other}"}


@pytest.mark.parametrize(
    ("remote", "url"),
    [
        ("https://user:token@example.org/team/duckkb.git", "https://example.org/team/duckkb.git"),
        ("git@example.org:team/duckkb.git", "ssh://git@example.org/team/duckkb.git"),
        ("/srv/duckkb", ""),
        ("file:///srv/duckkb", ""),
        ("https://127.0.0.1:8000/duckkb", ""),
        ("git@example.org:team/$(id)", ""),
        ("ext::sh -c id", ""),
    ],
)
def test_no_secret_of_a_clone_and_no_command_comes_into_a_workflow(remote: str, url: str) -> None:
    assert github_setup._convert_to_url(remote) == url


def _comment(runner: _Runner, head: str, tmp_path: Path, sha: str = "") -> list[str]:
    """The calls of the API that posting makes."""
    tool, log = commands(runner.temp) / "gh", tmp_path / "gh.log"
    tool.write_text(GH, "utf-8")
    tool.chmod(0o755)
    log.unlink(missing_ok=True)
    known = {
        "${{ github.token }}": "t",
        "${{ github.repository }}": "t/kb",
        "${{ github.event.workflow_run.head_sha }}": sha or head,
    }
    done = runner.step(
        "comment", "Post the comment", known, GH_LOG=str(log), GH_HEAD=head, GH_POSTED=str(tmp_path / "posted")
    )
    assert done.returncode == 0, done.stderr
    return log.read_text("utf-8").splitlines() if log.exists() else []


@pytest.mark.parametrize("number", ["7; id", "../8", "", "0", "7\n8"])
def test_what_a_fork_left_behind_is_not_trusted(runner: _Runner, tmp_path: Path, number: str) -> None:
    left = runner.temp / "duckkb-review"
    left.mkdir()
    (left / "comment.md").write_text("<!-- duckkb-review -->\nx", "utf-8")
    (left / "number").write_text(number, "utf-8")
    with pytest.raises(AssertionError):
        _comment(runner, "abc", tmp_path)
    assert not (tmp_path / "gh.log").exists()
    (left / "number").write_text("7\n", "utf-8")
    assert len(_comment(runner, "abc", tmp_path, sha="def")) == 1 and not (tmp_path / "posted").exists()
    (left / "comment.md").unlink()
    (left / "comment.md").symlink_to(tmp_path / "work/kb/config.yaml")
    with pytest.raises(AssertionError):
        _comment(runner, "abc", tmp_path)


def test_the_hooks_run_and_refuse(hosted: Path) -> None:
    hooks = yaml.safe_load((hosted / ".pre-commit-config.yaml").read_text("utf-8"))["repos"][0]["hooks"]
    entries = [shlex.split(hook["entry"])[1:] for hook in hooks]
    assert [hook["id"] for hook in hooks if hook.get("stages") == ["manual"]] == ["duckkb-index"]
    assert [run_in(hosted, entry).code for entry in entries] == [0, 0]
    (part, *_) = sorted(hosted.glob("kb/data/nodes/note/*/*.jsonl"))
    part.write_text(part.read_text("utf-8").replace('","', '", "'), "utf-8")
    git(hosted, "add", "-A")
    assert run_in(hosted, entries[0]).code == 1
    of_package = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    assert [hook["id"] for hook in of_package] == [hook["id"] for hook in hooks]
    assert [shlex.split(hook["entry"])[1:] for hook in of_package] == [entry[2:] for entry in entries]
    for name in ("always_run", "stages", "pass_filenames"):
        assert [hook.get(name) for hook in of_package] == [hook.get(name) for hook in hooks]
