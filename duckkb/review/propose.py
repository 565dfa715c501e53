"""The destination of a proposal: its branch, and how its pull request is opened."""

import re
from pathlib import Path
from urllib.parse import quote, urlsplit

from msgspec import Struct

from duckkb.truth.git import repository, run

_SCP = re.compile(r"(?:[^@/:]+@)?([^/:]+):(?!//)(.+)")


class Remote(Struct, frozen=True):
    """A remote by its name, its forge's host and the path of the repository there; both empty for a folder."""

    name: str
    host: str = ""
    path: str = ""


class Opening(Struct, frozen=True):
    """The steps that open a pull request: the command that pushes the branch, and the page that then opens it.

    The command is empty without a remote, the page where the forge is unknown.
    """

    push: str = ""
    url: str = ""


def branch_name(verb: str, what: str, unique: str) -> str:
    """Return the name of a proposal's branch.

    >>> branch_name("put", "Note Book", "1f3a9c")
    'propose/put-note-book-1f3a9c'
    """
    words = re.sub(r"[^a-z0-9]+", "-", f"{verb} {what}".lower()).strip("-")
    return f"propose/{words[:60]}-{unique}"


def remote(root: Path) -> Remote | None:
    """Return the remote of the current branch, else `origin`, else the only one."""
    names = (run.text(root, ["remote"]) or "").split("\n")
    upstream = run.text(root, ["config", "--get", f"branch.{repository.branch(root)}.remote"])
    for name in (upstream, "origin", names[0] if len(names) == 1 else None):
        if name and name in names:
            address = run.text(root, ["config", "--get", f"remote.{name}.url"]) or ""
            return Remote(name, *_parse_address(address))
    return None


def build_opening(where: Remote | None, branch: str, onto: str) -> Opening:
    """Return the steps from a branch to a pull request onto another."""
    if where is None:
        return Opening()
    push = f"git push -u {where.name} {branch}"
    page, source = f"https://{where.host}/{quote(where.path)}", quote(branch, safe="")
    if "github" in where.host:
        return Opening(push, f"{page}/compare/{quote(onto, safe='')}...{source}?expand=1")
    if "gitlab" in where.host:
        parameters = (
            f"merge_request%5Bsource_branch%5D={source}&merge_request%5Btarget_branch%5D={quote(onto, safe='')}"
        )
        return Opening(push, f"{page}/-/merge_requests/new?{parameters}")
    return Opening(push)


def _parse_address(address: str) -> tuple[str, str]:
    """Return host and path of a repository's address, without user names and passwords.

    >>> _parse_address("git@github.com:team/kb.git"), _parse_address("/srv/kb.git")
    (('github.com', 'team/kb'), ('', ''))
    >>> _parse_address("https://me:secret@gitlab.com/a/b/kb")
    ('gitlab.com', 'a/b/kb')
    """
    if "://" in address:
        parts = urlsplit(address)
        host, path = (parts.hostname or "", parts.path) if parts.scheme != "file" else ("", "")
    elif match := _SCP.fullmatch(address):
        host, path = match[1], match[2]
    else:
        host, path = "", ""
    path = path.strip("/").removesuffix(".git")
    return (host.lower(), path) if host and path and re.fullmatch(r"[A-Za-z0-9.-]+", host) else ("", "")
