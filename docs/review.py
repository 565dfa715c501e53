"""Writes docs/review.md: a branch with edits of the repository's own knowledge base, and what every tool of review says of it.

The outputs are real: they are made on a temporary copy. `--check` makes them again and compares; numbers of commits and the
figures of the model's search, which may differ in the last digits from machine to machine, do not count.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/review.md"
BASE = ("config.yaml", ".gitattributes", "ontology", "data")
DUCKKB = [sys.executable, "-m", "duckkb"]
BRANCH = "clearer-storage"
TIME = "2026-11-22T12:00:00.000000Z"
NEW = {
    "id": "fsync-batching",
    "name": "Batched flushing",
    "name_zh": "合并刷盘",
    "topic": "storage",
    "status": "draft",
    "summary": "Several files are written first and flushed together, so that the disk is waited for once.",
    "summary_zh": "先写完几个文件，再一起刷盘，只等待磁盘一次。",
    "body": "A write that touches five parts flushes their contents, then the folder, then the journal's name.",
}
EDITS: dict[str, dict[str, object]] = {
    "fsync": {
        "summary": "A system call that returns only when a file's content has reached stable storage; without it a power "
        "failure may undo or tear what seemed saved.",
        "tags": ["filesystem", "durability", "power"],
    },
    # What a tidy author may do without noticing: the words by which people look for it are gone.
    "shrink-guard": {
        "aliases": ["E_SHRINK"],
        "body": "See the reference.",
        "summary": "A refusal of large changes.",
        "summary_zh": "拒绝过大的改动。",
    },
}
_VARIES = re.compile(r"\b[0-9a-f]{7,40}\b|-?\d+\.\d{2,}|[+-]\d+\.\d+|\d{4}-\d\d-\d\dT[0-9:.+Z-]+")


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="duckkb-review-") as folder:
        kb = _Copy(Path(folder) / "kb")
        text = "".join(section(kb) for section in SECTIONS)
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(text, "utf-8")
        print(f"wrote: {PAGE.relative_to(ROOT)}")
        return 0
    if _steady(text) != _steady(PAGE.read_text("utf-8")):
        print("docs/review.md is not what the code does: .venv/bin/python docs/review.py", file=sys.stderr)
        return 1
    return 0


def _steady(text: str) -> str:
    """The page without what varies, and without the moves that the model's figures lead to."""
    kept = re.sub(r"<!-- model -->.*?<!-- end -->", "", text, flags=re.DOTALL)
    return _VARIES.sub("#", kept)


class _Copy:
    """The own base on `main`, and the edits on a branch that is checked out."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()
        for name in BASE:
            source = ROOT / name
            shutil.copytree(source, root / name) if source.is_dir() else shutil.copy2(source, root / name)
        self.git("init", "-q", "-b", "main")
        self._commit("The knowledge base as it is")
        self.git("remote", "add", "origin", "https://github.com/team/knowledge.git")
        self.git("switch", "-q", "-c", BRANCH)
        for name, fields in EDITS.items():
            self.duckkb("put", "concept", json.dumps({"id": name, **fields}, ensure_ascii=False), "--merge")
        new = {**NEW, "__created_at": TIME, "__updated_at": TIME}
        self.duckkb("import", "concept", "-", stdin=json.dumps(new, ensure_ascii=False))
        edge = {"from": "fsync-batching", "to": "fsync", "how": "part of", "__created_at": TIME, "__updated_at": TIME}
        self.duckkb("import", "relates_to", "-", stdin=json.dumps(edge))
        self.duckkb("delete", "concept", "surrogate-key", "--cascade")
        self._commit("Storage, said more clearly")

    def git(self, *args: str) -> str:
        return self._run(["git", "--no-pager", *args], (0,)).stdout

    def duckkb(self, *args: str, stdin: str = "", codes: tuple[int, ...] = (0,)) -> str:
        return self._run([*DUCKKB, *args], codes, stdin).stdout

    def shown(self, *args: str, codes: tuple[int, ...] = (0,), kind: str = "") -> str:
        """A command and what it prints, as a block of a page."""
        line = " ".join(arg if re.fullmatch(r"[\w./:=@-]+", arg) else f"'{arg}'" for arg in args)
        return _fenced(f"$ duckkb {line}\n{self.duckkb(*args, codes=codes).rstrip()}\n", kind or "console")

    def _commit(self, message: str) -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message)

    def _run(self, command: list[str], codes: tuple[int, ...], stdin: str = "") -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            command,
            cwd=self.root,
            env=_around(),
            input=stdin,
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=False,
        )
        if done.returncode not in codes:
            sys.exit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}")
        return done


def _around() -> dict[str, str]:
    """An environment in which the same edits give the same commits."""
    people = {f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in _PERSON.items()}
    quiet = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "NO_COLOR": "1", "PYTHONUTF8": "1"}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DUCKKB_", "GIT_"))}
    return kept | people | quiet | {"DUCKKB_WRITER": "review", "COLUMNS": "120"}


_PERSON = {"NAME": "Ada Reviewer", "EMAIL": "ada@example.org", "DATE": "2026-11-22T12:00:00+00:00"}


def _fenced(text: str, kind: str) -> str:
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence}{kind}\n{text}{fence}\n\n"


def _intro(kb: _Copy) -> str:
    return f"""\
<!-- Written by docs/review.py; do not edit. -->

# Reviewing knowledge

A pull request of a knowledge base changes lines of JSON. What a reviewer wants to know is which records changed, whether
anything is broken, and whether people still find what they look for. This page shows the tools on a branch of duckkb's own
knowledge base, `{BRANCH}`, which edits two concepts, adds one and removes another. Every output on it is real:
`docs/review.py` makes the branch and runs the commands, and CI compares.

"""


def _comment(kb: _Copy) -> str:
    shown = kb.duckkb("diff", f"main...{BRANCH}", "--format", "markdown")
    return f"""\
## All of it under one headline

`duckkb review main...{BRANCH}` writes the comment of a pull request: a headline, the findings, the records, and last what the
change does to search. The headline names what is to be decided: errors and warnings with their codes, limits that were crossed,
what could not run, and what nobody judged. `passed` appears alone if there is nothing else to report.

| the headline says | because |
|---|---|
| `passed with 7 warnings (6 W_GUARD, 1 W_MERGED)` | six rules were weakened, which `--allow-weaker` or the label permits, and a line-by-line merge by git brought a record back |
| `limits crossed, 1 error (1 E_SCHEMA)` | search lost too much, and a record breaks its schema |
| `passed; no question judges what this does to search` | `ontology/questions.yaml` has none |
| `passed; no limit was set on what this does to search (--fail-on, as the workflows have it)` | the command names no `--fail-on`: the workflows set limits, so their verdict may be another |
| `impact could not run` | this is no verdict on the change |

`--page FILE` and `--sarif FILE` write the page and the log for code scanning beside it; `--format github` prints annotations, `json`
one object. All of them have the findings of `duckkb check --since`, and so have `diff --fail-on` and `--format markdown`, `html`
and `github` of `diff`. Other forms of `diff` look at the touched files alone; as JSON their `outcome` is `not_judged`.

## The change, as records

`duckkb diff main...{BRANCH} --format markdown` writes the records of that comment. All data stands in code spans and fences, so
that it can neither mention nor inject; links lead to the forge's pages of lines and commits, in a job on GitHub and where the
remote of this clone is on GitHub or GitLab and has the commit.

{_fenced(shown, "markdown")}\
`--format html` makes one page with fields side by side, filters, search and keys, which works from disk:

![The page of a difference](images/review.png)

A record is told by its title and two short fields. Which these are a type says itself, the title first; without `display` it is
a field such as `title` or `name`, or the first text:

```yaml
nodes:
  Policy:
    identity: id
    display: [heading, owner, status]
```

"""


def _impact(kb: _Copy) -> str:
    shown = kb.shown(
        "impact",
        f"main...{BRANCH}",
        "--fail-on",
        "ndcg=0.01",
        "--fail-on",
        "lost=1",
        "--format",
        "markdown",
        codes=(1,),
        kind="markdown",
    )
    return f"""\
## What it does to search

`ontology/questions.yaml` has judged questions: what people ask, and which records answer it, by grade.

```yaml
questions:
  - question: "rm -rf by accident: is there protection against wiping most of a table?"
    type: Concept
    expected: {{shrink-guard: 2}}
```

`duckkb impact` asks them on both sides of a change, read from git without a checkout, with the vectors of both in one cache.
Exit 1 says that a limit of `--fail-on` was reached: here a tidy author took away the words by which a record was found.

<!-- model -->
{shown}<!-- end -->

`ndcg=0.05` and `recall=0.1` are drops of the mean, `lost=3` a number of judged records that fell out of the first ten
(`-k`), `faded=3` of those that are still found and lost half of their words' score. 0 stands for any drop. Questions of
either side are asked of both; those that are gone or judge lower are findings. A type without vectors, or
`embedding_model: none`, compares words alone; where the model is missing the report says that its answers are degraded.
Where the older side's configuration does not load the newer one's stands in, and lines of it that cannot be read are left
out: a change that mends them is judged, and told so.

"""


def _why(kb: _Copy) -> str:
    shown = kb.shown("why", "concept", "shrink-guard", "protection against wiping a table", "-m")
    return f"""\
## Why it is not found

{shown}\
Also below the cut: the rank in each lane, the filter (`-w`) or `-word` that removed the record, chunks without a vector, and
what the type's policy allows. `--at main` asks the same of the other side.

"""


def _provenance(kb: _Copy) -> str:
    hit = json.loads(kb.duckkb("find", "concept", "stable storage", "-m", "-l", "1", "--provenance"))
    told = json.dumps(hit["_provenance"], ensure_ascii=False, indent=1)
    uri = hit["_provenance"]["uri"]
    blame = [json.loads(line) for line in kb.duckkb("blame", "concept", "fsync").splitlines()]
    rows = "".join(f"{one['commit'][:7]}  {one['author']}  {one['summary']:<28}  {one['field']}\n" for one in blame)
    back = json.loads(kb.duckkb("get", uri))
    return f"""\
## Where it comes from

`find --provenance` says of every hit which commit its record's line is from, and how to cite it:

{_fenced(told + chr(10), "json")}\
`duckkb get` with the `uri` prints the record as it was at that commit, with the chunk that was found (here of the field
`{back["_chunk"]["field"]}`). `get`, `list` and `find` take `--at REF` and answer as of a commit, branch or tag, with the types of that
time; nothing is checked out. `duckkb blame concept fsync` names the commit of each field, `duckkb log concept fsync` prints
every change of the record with both values; both follow `__id` through moves, renames and merges. The columns of blame:

{_fenced(rows, "text")}\
What is not committed says `"uncommitted": true`; at the end of a shallow clone's history stands `"shallow": true`.

"""


def _proposals(kb: _Copy) -> str:
    kb.git("switch", "-q", "main")
    edit = {"id": "chunk", "status": "draft"}
    shown = kb.shown("propose", "--branch", "propose/chunk", "put", "concept", json.dumps(edit), "--merge")
    return f"""\
## Proposals

`duckkb propose` before `put`, `import`, `delete` or `rename` writes the change as a commit on a branch of its own, by git's plumbing: files,
index and HEAD stay as they are, and no hook runs. The receipt says how to open the pull request. Its `pending` counts texts that have no
vector yet, as a proposal computes none; they get theirs after the merge, by the next search or `duckkb index build`. The same `--branch` may be
proposed to again; one that somebody else has made, or added to, only with `--continue`.

{shown}\
Without a remote, two commands review the proposal and merge it by records; `duckkb propose` prints both:

```console
$ duckkb review HEAD...propose/chunk
$ duckkb merge propose/chunk
```

Where the ontology has `review: required` on a type, or `x-review: required` on a field, direct writes by agents are refused
with E_REVIEW, and this is their way. An agent is who runs with `DUCKKB_AGENT=1`: set it where you start one, beside
`DUCKKB_SANDBOX=1` and `DUCKKB_KB`.

```yaml
nodes:
  Policy:
    identity: id
    review: required
    schema:
      type: object
      properties:
        id: {{type: string}}
```

"""


def _hosting(kb: _Copy) -> str:
    made = [json.loads(line)["file"] for line in kb.duckkb("init", "--github").splitlines()]
    *others, last = (f"`{Path(name).name}`" for name in made if name.startswith(".github/"))
    return f"""\
## On GitHub

`duckkb init --github` writes four workflows, {", ".join(others)} and {last}, into
`.github/workflows/` at the top of the repository, and `.pre-commit-config.yaml` beside them. It changes no file that is there already.

- *check* runs `duckkb check` and `duckkb fmt --check` on pull requests and on what a merge queue is about to merge.
- *review* writes what `duckkb review` says into the summary of the run, and fails where there are errors or a limit is reached
  (`LIMITS` in the file). It runs on what a fork proposes, so it has no secret and no right to write; in a merge queue it looks
  at what is about to be merged. The page and the SARIF log are in the artefact `duckkb-page` of the run, to which the comment
  leads.
- *check* and *review* end after one step, without a comment, where a pull request changes neither `config.yaml`, `ontology/` and
  `data/` (nor a file of a document collection) nor a workflow, a hook or `.gitattributes`.
- *comment* posts what *review* left behind as one comment that follows the pull request. It checks nothing out and runs
  nothing of the pull request: it takes a number and a text, and posts only where the pull request is at the commit of the run.
- *index* runs at night: every record checked, the index built and pushed (where somebody was faster, it is built again on what they
  pushed), what is not a file of documents exported and imported again, and, where no host makes the vectors, the index built
  twice from nothing and compared. What a run has made is pushed also where a model stops answering or three hours are over; the
  job then fails and says which: `E_MODEL`, `E_BUDGET`.
- `.pre-commit-config.yaml` runs `duckkb check --staged` before every commit and merge, also those that only delete, and by hand,
  where there is no nightly job, `duckkb index build` (`pre-commit run duckkb-index --hook-stage manual`, on the main branch).
  `pre-commit install` sets that up. What is checked is what will be committed: with `git commit -a` or `git commit PATH` too.

The team's cache is one Parquet file that changes at night. `duckkb init --lfs` has git keep it in Git LFS; `check` advises it
past 50 MB.

*check* and *review* compare a pull request with the present tip of the branch that it goes into, not with the commit that it started from:
GitHub tests a trial merge of both, whose first parent is that tip. The workflows fetch the whole history for this (`fetch-depth: 0`). A change that takes away or weakens a rule by which it is judged fails with E_GUARD: a required review, a
limit, a cardinality, a rule of a schema, a judged question, a workflow that runs duckkb (pins may move), an attribute of git.
Where that is meant, somebody who may label pull requests gives this one the label `duckkb: weaker rules`
(`duckkb: many deletions` where more records go than `limits` allow). A workflow that a
pull request deletes does not run on it, so require *check* and *review* in the branch's rules: each tells of the other.

The workflows install the commit that the duckkb at hand was installed from. Where that has no address that a forge reaches, they
fail in a step that says so, until `duckkb init --github --install git+https://HOST/OWNER/duckkb@COMMIT` has filled it in.

Where an endpoint makes the vectors, *index* needs two things in the settings of the repository: a variable `DUCKKB_TRUST` with
the `hash` of `duckkb trust --show`, by which you accept that host, and a secret with the name of the key's variable
(`OPENAI_API_KEY`). Its first step says which of them is missing. No other workflow gets the key.

The actions are pinned by hash; the workflows pass actionlint and zizmor, and their shell steps run in duckkb's tests. The
nightly push needs the right to push to the main branch; where that is protected, let it push to a branch instead.
"""


SECTIONS: tuple[Callable[[_Copy], str], ...] = (_intro, _comment, _impact, _why, _provenance, _proposals, _hosting)

if __name__ == "__main__":
    sys.exit(main())
