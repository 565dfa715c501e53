"""`init --github`: workflows and hooks that check, review and index a base where it is hosted."""

import json
import os
import re
import shlex
from importlib.metadata import distribution, version
from importlib.resources import files
from pathlib import Path
from textwrap import indent

from duckkb import config
from duckkb.errors import UsageError
from duckkb.truth import state
from duckkb.truth.git import repository, run
from duckkb.values import dataclass

_WORKFLOWS = ".github/workflows"
_TARGETS = {
    f"{_WORKFLOWS}/duckkb-check.yml": "duckkb-check.yml",
    f"{_WORKFLOWS}/duckkb-review.yml": "duckkb-review.yml",
    f"{_WORKFLOWS}/duckkb-comment.yml": "duckkb-comment.yml",
    f"{_WORKFLOWS}/duckkb-index.yml": "duckkb-index.yml",
    ".pre-commit-config.yaml": "pre-commit-config.yaml",
}


@dataclass(frozen=True, slots=True)
class Hosted:
    """What was written for a forge, relative to `top`, the top of the repository; `kept` are files that were there already
    and say something else: they stay as they are. `install` is where the workflows install duckkb from, as pip reads it behind
    the name: ` @ URL` or `==VERSION`."""

    top: Path
    files: tuple[str, ...]
    kept: tuple[str, ...]
    install: str

    @property
    def is_shared(self) -> bool:
        """Whether another machine is likely to find what is installed there."""
        return self.install.startswith(" @ ") and "file:" not in self.install


def github(root: Path, install: str | None = None) -> Hosted:
    """Write the workflows for a base, at the top of its repository. `install` says where they install duckkb from: a URL as
    pip takes it (`git+https://HOST/OWNER/duckkb@COMMIT`) or a version (`==0.1.0`); else it is where this one came from. Raises `errors.UsageError` (E_PATH) where that is
    behind a link, or outside of the base in a sandbox, and (E_USAGE) for an `install` that is neither."""
    origin = _checked(install) if install is not None else _origin()
    found = run.find_repository(root)
    top = found.work_tree if found else root.resolve()
    if config.environment().sandbox and top != root.resolve():
        raise UsageError(
            f"the workflows belong into {top}, which is outside of the base, and DUCKKB_SANDBOX is set", code="E_PATH"
        )
    place = root.resolve().relative_to(top).as_posix()
    _refuse_links(top)
    written, kept = [], []
    for target, template in _TARGETS.items():
        data = _filled(template, place, _main_branch(root), origin).encode()
        if not os.path.lexists(top / target):
            (top / target).parent.mkdir(parents=True, exist_ok=True)
            state.write_new(top / target, data)
            written.append(target)
        elif (top / target).is_symlink() or (top / target).read_bytes() != data:
            kept.append(target)
    return Hosted(top, tuple(written), tuple(kept), origin)


def _main_branch(root: Path) -> str:
    """The branch that others start from: as the remote has it, else the one that is checked out."""
    here = repository.branch(root)
    return repository.default_branch(root) or (here if here != repository.head_commit(root) else "") or "main"


def not_shared(install: str) -> str:
    """What is said of an origin that others may not reach."""
    where = install.removeprefix(" @ ") if install.startswith(" @ ") else f"duckkb{install} from the index of packages"
    remedy = "duckkb init --github --install git+https://HOST/OWNER/duckkb@COMMIT, where the files are not there yet"
    return f"the workflows install {where}: where a forge cannot reach that, {remedy}"


def _checked(install: str) -> str:
    if re.fullmatch(r"==[0-9A-Za-z.!+-]+", install):
        return install
    if re.fullmatch(r"(git\+|https:|file:)[!-~]+", install) and not re.search(r"""['"`\\$]""", install):
        return f" @ {install}"
    raise UsageError(
        f"{install!r} is nothing to install duckkb from",
        suggestion="duckkb init --github --install git+https://HOST/OWNER/duckkb@COMMIT",
    )


def _origin() -> str:
    """Where the duckkb that runs here was installed from, exact to the commit where git knows it: from what pip noted
    (PEP 610), or from the checkout that it lies in."""
    noted = json.loads(distribution("duckkb").read_text("direct_url.json") or "{}")
    by_git = noted.get("vcs_info", {})
    if by_git.get("vcs") == "git":
        return f" @ git+{_without_secrets(noted['url'])}@{by_git['commit_id']}"
    place = Path(str(files("duckkb"))).parent
    commit = repository.head_commit(place) if (place / ".git").exists() else None
    if commit is None:
        return f"=={version('duckkb')}"
    remote = repository.address_of_origin(place)
    return f" @ git+{_as_url(remote) or place.as_uri()}@{commit}"


def _as_url(remote: str) -> str:
    """A remote as pip takes it, empty where it is no address that could be written into a file."""
    if by_ssh := re.fullmatch(r"([\w.-]+@[\w.-]+):(?!//)(\S+)", remote):
        return f"ssh://{by_ssh[1]}/{by_ssh[2]}"
    if remote.startswith("/"):
        return Path(remote).as_uri()
    return _without_secrets(remote) if re.fullmatch(r"(https|ssh|file)://[!-~]+", remote) else ""


def _without_secrets(url: str) -> str:
    """Without user and password: what a clone was made with is nothing to commit."""
    return re.sub(r"^(https?://)[^/@]*@", r"\1", url)


def _filled(template: str, place: str, branch: str, install: str) -> str:
    """A template with what it must know: the base's place in the repository, the main branch, where duckkb is from."""
    text = _with_script(_with_script(_read(template), "DIFFERS", "differs.sh"), "BASE", "base.sh")
    kb = "" if place == "." else f"--kb {shlex.quote(place)} "
    values = {
        "KB": json.dumps(place, ensure_ascii=False),
        "BRANCH": json.dumps(branch, ensure_ascii=False),
        "INSTALL": f"'duckkb{install}'",
        "INSTALL_LOCAL": f"'duckkb[local]{install}'",
        "CHECK": json.dumps(f"duckkb {kb}check --staged", ensure_ascii=False),
        "INDEX": json.dumps(f"duckkb {kb}index build", ensure_ascii=False),
    }
    return re.sub(r"@([A-Z_]+)@", lambda found: values[found[1]], text)


def _with_script(text: str, mark: str, script: str) -> str:
    """The text with a script in the place of a mark, indented as that is."""
    body = _read(script).rstrip("\n")
    return re.sub(rf"( *)@{mark}@", lambda found: indent(body, found[1]), text)


def _read(template: str) -> str:
    return (files("duckkb.actions") / "templates" / template).read_text("utf-8")


def _refuse_links(top: Path) -> None:
    """A clone may bring links where our files go."""
    for name in (".github", _WORKFLOWS):
        if (top / name).is_symlink():
            raise UsageError(f"{top / name} is a link", code="E_PATH", suggestion="remove it, then do this again")
