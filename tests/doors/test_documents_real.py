"""A walk with real documents in two languages, held against git: added, searched, edited, renamed, compared, blamed, ignored.

DUCKKB_EVAL_DATA names a folder with the Markdown files of FastAPI's documentation in `docs/fastapi_en` and `docs/fastapi_zh`."""

import os
import shutil
from pathlib import Path

import pytest

from tests.conftest import Ran, commit, git, make_base, run_in
from tests.fake_endpoint import FakeEndpoint

DATA = Path(os.environ.get("DUCKKB_EVAL_DATA") or ".", "docs")
pytestmark = pytest.mark.skipif(
    not (os.environ.get("DUCKKB_EVAL_DATA") and (DATA / "fastapi_zh").is_dir()),
    reason="DUCKKB_EVAL_DATA names no folder with docs/fastapi_en and docs/fastapi_zh",
)

QUESTIONS = {
    "allow cross-origin requests with the CORS middleware": "fastapi_en/tutorial/cors.md",
    "hash passwords and check JWT tokens": "fastapi_en/tutorial/security/oauth2-jwt.md",
    "run a task in the background after returning a response": "fastapi_en/tutorial/background-tasks.md",
    "create and activate a virtual environment": "fastapi_en/virtual-environments.md",
    "serve static files from a directory": "fastapi_en/tutorial/static-files.md",
    "跨域资源共享": "fastapi_zh/tutorial/cors.md",
    "密码哈希与 JWT 令牌": "fastapi_zh/tutorial/security/oauth2-jwt.md",
    "返回响应之后运行的后台任务": "fastapi_zh/tutorial/background-tasks.md",
    "创建并激活虚拟环境": "fastapi_zh/virtual-environments.md",
    "上传文件 UploadFile": "fastapi_zh/tutorial/request-files.md",
}
EDITED = "docs/fastapi_en/tutorial/cors.md"


def test_kx_01_a_walk_with_real_documents_agrees_with_git(tmp_path: Path) -> None:
    with FakeEndpoint() as endpoint:
        root = _base(tmp_path / "kb", endpoint)
        (added,) = run_in(root, ["update"]).lines
        assert (added["documents"], added["added"]) == (279, 279)
        _is_found(root)
        first = git(root, "rev-parse", "HEAD").strip()
        _edit_one_section(root, endpoint)
        _rename_and_delete(root, endpoint)
        _is_as_git_says(root, first, "HEAD~1")
        _is_as_git_says(root, first, "HEAD")
        _is_blamed_as_by_git(root)
        _is_seen_at(root, first)
        _is_ignored(root)


def _base(root: Path, endpoint: FakeEndpoint) -> Path:
    place = f"{{base_url: '{endpoint.url}', dimensions: 16, max_retries: 0}}"
    make_base(root, f"global: {{embedding_model: far, embedding: {place}}}\n")
    for path in DATA.glob("fastapi_*/**/*.md"):
        copy = root / "docs" / path.relative_to(DATA)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    assert run_in(root, ["trust"]).code == 0
    assert run_in(root, ["collection", "add", "docs"]).code == 0
    commit(root)
    return root


def _files(ran: Ran) -> list[str]:
    assert ran.code == 0, ran.err
    return [line["file"].removeprefix("duckkb://docs/") for line in ran.lines]


def _is_found(root: Path) -> None:
    for question, expected in QUESTIONS.items():
        assert expected in _files(run_in(root, ["search", question]))[:3], question
        assert expected in _files(run_in(root, ["query", question]))[:5], question


def _edit_one_section(root: Path, endpoint: FakeEndpoint) -> None:
    path = root / EDITED
    text = path.read_text("utf-8")
    assert text.count("\n## Wildcards") == 1
    path.write_text(text.replace("\n## Wildcards", "\nA quokka allows every origin.\n\n## Wildcards"), "utf-8")
    before = len(endpoint.texts)
    (told,) = run_in(root, ["update"]).lines
    embedded = endpoint.texts[before:]
    assert told["changed"] == 1 and 1 <= len(embedded) <= 3 and "quokka" in "".join(embedded)
    commit(root, "edit")


def _rename_and_delete(root: Path, endpoint: FakeEndpoint) -> None:
    git(root, "mv", "docs/fastapi_zh/tutorial/cors.md", "docs/fastapi_zh/tutorial/跨域 资源.md")
    git(root, "mv", EDITED, "docs/fastapi_en/cors.md")
    with (root / "docs/fastapi_en/cors.md").open("a", encoding="utf-8") as file:
        file.write("\n## Afterwards\n\nA numbat was added at the end.\n")
    git(root, "rm", "-q", "docs/fastapi_en/newsletter.md")
    (root / "docs/fastapi_en/new.md").write_text("# New\n\nNothing like anything else.\n", "utf-8")
    before = len(endpoint.texts)
    (told,) = run_in(root, ["update"]).lines
    assert (told["added"], told["removed"]) == (3, 3)
    assert 1 <= len(endpoint.texts) - before <= 4, "what moved as it was has its vectors"
    commit(root, "rename")


def _is_as_git_says(root: Path, base: str, head: str) -> None:
    """`git diff --name-status`, told as what became of records."""
    told = git(root, "diff", "--name-status", "-z", "-M", base, head, "--", "docs").split("\0")
    words, expected = iter(told[:-1]), set()
    for status in words:
        was = next(words).removeprefix("docs/")
        op = {"A": "insert", "D": "delete", "M": "update", "R": "rename"}[status[0]]
        expected.add(
            (op, next(words).removeprefix("docs/") if op == "rename" else was, was if op == "rename" else None)
        )
    (diff,) = run_in(root, ["diff", f"{base}..{head}", "--format", "json", "--full"]).lines
    assert {
        (one["op"], one["identity"], one.get("was")) for one in diff["changes"] if one["type"] == "docs"
    } == expected


def _is_blamed_as_by_git(root: Path) -> None:
    """A text is from the newest commit that git blames for one of its lines."""
    order = git(root, "rev-list", "HEAD").split()
    for path in ("fastapi_en/cors.md", "fastapi_zh/tutorial/跨域 资源.md", "fastapi_en/new.md", "fastapi_en/async.md"):
        porcelain = git(root, "blame", "--line-porcelain", "HEAD", "--", f"docs/{path}").splitlines()
        commits = {line.split()[0] for line in porcelain if line[:40].isalnum() and len(line.split()[0]) == 40}
        found = {one["field"]: one["commit"] for one in run_in(root, ["blame", "docs", path]).lines}
        assert found["text"] == min(commits, key=order.index), path


def _is_seen_at(root: Path, first: str) -> None:
    assert _files(run_in(root, ["search", "numbat"])) == ["fastapi_en/cors.md"]
    assert "fastapi_en/newsletter.md" in _files(run_in(root, ["search", "newsletter", "--at", first]))
    assert run_in(root, ["search", "numbat", "--at", first]).code == 1


def _is_ignored(root: Path) -> None:
    definition = root / "ontology/collections/docs.yaml"
    text = definition.read_text("utf-8")
    definition.write_text(text.replace("path: docs\n", "path: docs\n      ignore: [fastapi_zh/]\n"), "utf-8")
    assert not any(file.startswith("fastapi_zh") for file in _files(run_in(root, ["search", "UploadFile", "--all"])))
    (told,) = run_in(root, ["update"]).lines
    assert (told["documents"], told["removed"]) == (155, 124)
