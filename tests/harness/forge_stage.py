"""Plays a forge: a bare repository with pull requests and their merges, checkouts as deep as a workflow says, its events, and
its steps, run in bash in the order of the file. What a step would post or install is written down instead."""

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.conftest import NOTES, commit, git, make_base, run_in
from tests.doors.shell import commands

QUESTIONS = """\
questions:
  - {question: storm warning, type: Note, expected: {storm: 2}}
  - {question: 潮汐, type: Note, mode: match, expected: {tide: 1}}
"""
GH = """\
#!/bin/sh
# What the API would answer: the head of the pull request, the comments that were posted; posted bodies are kept.
echo "$@" >> "$GH_LOG"
body=""
for word in "$@"; do case "$word" in body=@*) body="${word#body=@}" ;; esac; done
case "$*" in
  *pulls/*) echo "$GH_HEAD" ;;
  *--paginate*) [ ! -f "$GH_POSTED" ] || echo 4711 ;;
  *) cp "$body" "$GH_POSTED" ;;
esac
"""
ADDRESS = "git+https://example.org/team/duckkb@" + "a" * 40
_OURS = ("PATH", "HOME", "PYTHON", "XDG", "GIT_", "DUCKKB_TEST", "TMPDIR", "LANG", "SYSTEMROOT")


@dataclass
class Ended:
    """How a job ended: the exit code of each step by name, what they printed, and what is left behind."""

    codes: dict[str, int] = field(default_factory=dict)
    out: str = ""
    err: str = ""
    temp: Path = Path()

    @property
    def failed(self) -> bool:
        return any(self.codes.values())

    @property
    def comment(self) -> str:
        return (self.temp / "duckkb-review/comment.md").read_text("utf-8")

    @property
    def verdict(self) -> str:
        """The line of the comment that says which outcome it is."""
        return self.comment.splitlines()[1].strip("*")


class Forge:
    """A bare repository `origin.git` whose main branch holds a base in a folder, with its workflows, and a clone of it
    (`work`) that pull request 1 is written in."""

    def __init__(self, folder: Path, place: str) -> None:
        self.folder, self.place = folder, place
        self.settings: dict[str, str] = {}
        """The repository's variables and secrets: `vars.NAME` and `secrets.NAME`."""
        self.work, self.origin = folder / "work", folder / "origin.git"
        self.kb = self.work / place
        self._jobs = 0

    @classmethod
    def make(cls, folder: Path, place: str) -> "Forge":
        forge = cls(folder, place)
        forge.begin(NOTES.replace("title: {type: string}", "title: {type: string, x-review: required}"))
        (forge.kb / "ontology").mkdir()
        (forge.kb / "ontology/questions.yaml").write_text(QUESTIONS, "utf-8")
        records = [
            {"id": "storm", "title": "storm warning", "text": "A storm warning is given a day before."},
            {"id": "tide", "title": "潮汐", "text": "潮汐由月亮引起。"},
            *({"id": f"n{number}", "title": f"Note {number}"} for number in range(4)),
        ]
        forge.put(*records)
        forge.host()
        return forge

    def begin(self, config: str) -> None:
        """A base with this configuration, in a repository."""
        make_base(self.kb, config)
        if self.place != ".":
            (self.kb / ".git").rename(self.work / ".git")

    def host(self) -> None:
        """Give the base its workflows, and have the forge hold it; pull requests are written in a branch beside main."""
        assert run_in(self.kb, ["init", "--github", "--install", ADDRESS]).code == 0
        commit(self.work, "The base")
        git(self.folder, "clone", "-q", "--bare", "work", "origin.git")
        git(self.work, "remote", "add", "origin", str(self.origin))
        git(self.work, "switch", "-q", "-c", "topic")

    def copy(self, folder: Path) -> "Forge":
        for name in ("work", "origin.git"):
            shutil.copytree(self.folder / name, folder / name, symlinks=True)
        forge = Forge(folder, self.place)
        git(forge.work, "remote", "set-url", "origin", str(forge.origin))
        return forge

    def put(self, *records: dict[str, Any]) -> None:
        ran = run_in(self.kb, ["put", "Note", "--merge"], stdin="\n".join(json.dumps(one) for one in records))
        assert ran.code == 0, ran.err

    def edit(self, path: str, old: str, new: str) -> None:
        text = (self.kb / path).read_text("utf-8")
        assert old in text
        (self.kb / path).write_text(text.replace(old, new), "utf-8")

    def main_moves_on(self) -> None:
        """Main gets records after the pull request was pushed: its event still names the commit before."""
        git(self.work, "switch", "-q", "main")
        self.put({"id": "faster", "title": "faster"}, {"id": "n3", "title": "edited on main"})
        commit(self.work, "main moves on")
        git(self.work, "push", "-q", "origin", "main")
        git(self.work, "switch", "-q", "topic")

    def open(self, *labels: str) -> dict[str, Any]:
        """The event of pull request 1, from what is in the working tree: committed, pushed."""
        commit(self.work, "The change")
        git(self.work, "push", "-q", "origin", "+HEAD:refs/pull/1/head")
        base = git(self.work, "merge-base", "main", "topic").strip()
        pull = {"number": 1, "base": {"sha": base}, "head": {"sha": git(self.work, "rev-parse", "HEAD").strip()}}
        return {"pull_request": pull | {"labels": [{"name": one} for one in labels]}}

    def merged(self, ref: str = "refs/pull/1/merge") -> str:
        """The merge of the pull request into main as it is now, made as a forge makes it, without a checkout."""
        tree = git(self.origin, "merge-tree", "--write-tree", "main", "refs/pull/1/head").splitlines()[0]
        parents = ["-p", "main", "-p", "refs/pull/1/head"]
        made = git(self.origin, "commit-tree", tree, *parents, "-m", "Merge pull request 1").strip()
        git(self.origin, "update-ref", ref, made)
        return made

    def run(
        self,
        workflow: str,
        event: dict[str, Any],
        *,
        name: str = "pull_request",
        depth: int | None = None,
        env: dict[str, str] | None = None,
    ) -> Ended:
        """The job of a workflow, as it stands in the commit that is tested; `depth` instead of what the checkout says, `env`
        is what the runner's environment has besides."""
        ref = {"pull_request": "refs/pull/1/merge", "merge_group": "refs/heads/queue/1"}.get(name, "refs/heads/main")
        is_of_main = ref == "refs/heads/main"
        sha = git(self.origin, "rev-parse", ref).strip() if is_of_main else self.merged(ref)
        self._jobs += 1
        top = self.folder / f"job{self._jobs}"
        top.mkdir()
        (work,) = yaml.safe_load(git(self.origin, "show", f"{sha}:.github/workflows/duckkb-{workflow}.yml"))[
            "jobs"
        ].values()
        facts = {"GITHUB_SHA": sha, "GITHUB_REF": ref, "GITHUB_EVENT_NAME": name, **work.get("env", {})}
        job = Job(top, self.place, facts | (env or {}), event)
        job.settings = self.settings
        steps = work["steps"]
        (how,) = [one["with"] for one in steps if "actions/checkout" in one.get("uses", "")]
        job.checkout(self.origin, how["fetch-depth"] if depth is None else depth)
        if "ref" in how:  # actions/checkout stands on the branch then
            git(top / "space", "checkout", "-q", "-B", how["ref"])
        if how.get("lfs") and shutil.which("git-lfs"):
            git(top / "space", "lfs", "install", "--local")
            git(top / "space", "lfs", "pull")
        return job.run(steps)


class Job:
    """One runner: a work space, the folders and files that its steps know of by the environment."""

    def __init__(self, top: Path, place: str, facts: dict[str, str], event: dict[str, Any]) -> None:
        self._space, self._place, self._temp, self._event = top / "space", place, top / "temp", event
        self.settings: dict[str, str] = {}
        self._temp.mkdir()
        bin_folder = commands(top)
        self.installed = top / "installed"
        (bin_folder / "python").write_text(f'#!/bin/sh\necho "$@" >> {self.installed}\n', "utf-8")
        (bin_folder / "python").chmod(0o755)
        (self._temp / "event.json").write_text(json.dumps(event), "utf-8")
        for name in ("output", "summary.md"):
            (self._temp / name).touch()
        self._env = {key: value for key, value in os.environ.items() if key.startswith(_OURS)} | facts
        self._env |= {
            "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
            "PYTHONUTF8": "1",
            "RUNNER_TEMP": str(self._temp),
            "GITHUB_WORKSPACE": str(self._space),
            "GITHUB_EVENT_PATH": str(self._temp / "event.json"),
            "GITHUB_OUTPUT": str(self._temp / "output"),
            "GITHUB_STEP_SUMMARY": str(self._temp / "summary.md"),
            "GITHUB_SERVER_URL": "https://github.com",
            "GITHUB_REPOSITORY": "team/kb",
            "GITHUB_RUN_ID": "77",
        }

    def checkout(self, origin: Path, depth: int) -> None:
        """As actions/checkout does it: a fetch of one commit, and where all is asked for, of every branch."""
        git(self._space.parent, "init", "-q", "-b", "none", str(self._space))
        git(self._space, "remote", "add", "origin", f"file://{origin}")
        sha, ref = self._env["GITHUB_SHA"], self._env["GITHUB_REF"]
        deep = [f"--depth={depth}"] if depth else ["+refs/heads/*:refs/remotes/origin/*"]
        git(
            self._space,
            "fetch",
            "-q",
            "--no-tags",
            *deep[: depth and 1],
            "origin",
            *deep[depth and 1 :],
            f"+{ref}:{ref}",
        )
        git(self._space, "checkout", "-q", "--detach", sha)

    def run(self, steps: list[dict[str, Any]]) -> Ended:
        ended, outputs = Ended(temp=self._temp), {}
        for step in (one for one in steps if "run" in one):
            if not _is_due(step.get("if", ""), ended.failed, outputs):
                continue
            values = {key: self._value(str(value), outputs) for key, value in step.get("env", {}).items()}
            done = self._bash(step, values)
            ended.codes[step["name"]] = done.returncode
            ended.out, ended.err = ended.out + done.stdout, ended.err + done.stderr
            told = dict(line.split("=", 1) for line in (self._temp / "output").read_text("utf-8").splitlines())
            outputs |= {f"${{{{ steps.{step.get('id')}.outputs.{key} }}}}": value for key, value in told.items()}
        return ended

    def _value(self, value: str, outputs: dict[str, str]) -> str:
        """A value of `env:` without its expression: an output of a step, a setting of the repository, or what the event says."""
        if setting := re.fullmatch(r"\$\{\{ ((vars|secrets)\.\w+) \}\}", value):
            return self.settings.get(setting[1], "")
        if asked := re.fullmatch(r"\$\{\{ github\.event\.([\w.]+) \}\}", value):
            event = self._event
            for name in asked[1].split("."):
                event = event.get(name, {})
            return str(event or "")
        found = outputs.get(value, "" if value.startswith("${{ steps.") else value)
        assert "${{" not in found, "an expression that this forge does not know"
        return found

    def _bash(self, step: dict[str, Any], values: dict[str, str]) -> "subprocess.CompletedProcess[str]":
        assert "${{" not in step["run"], "values reach a script through the environment alone"
        at = self._temp if "temp" in step.get("working-directory", "") else self._space / self._place
        if not at.is_dir():
            return subprocess.CompletedProcess([], 1, "", f"no such folder: {at}")
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        return subprocess.run(
            command,
            cwd=at,
            env=self._env | values,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )


def _is_due(condition: str, failed: bool, outputs: dict[str, str]) -> bool:
    """Whether a step runs: without a function of its own that asks how the job is, only while nothing failed."""
    text = re.sub(
        r"steps\.(\w+)\.outputs\.(\w+) == '(\w*)'",
        lambda found: str(outputs.get(f"${{{{ steps.{found[1]}.outputs.{found[2]} }}}}", "") == found[3]),
        condition,
    )
    asks = "failure()" in text
    for word, value in (("success()", not failed), ("failure()", failed), ("&&", "and"), ("||", "or")):
        text = text.replace(word, f" {value} ")
    assert set(text.split()) <= {"True", "False", "and", "or", "(", ")"} | {"(True", "False)", "True)", "(False"}, (
        condition
    )
    return bool(not text or eval(text)) and (asks or not failed)
