"""`init --github`: workflows and hooks that check, review and index a base where it is hosted."""

import json
import os
import re
import shlex
from collections.abc import Sequence
from importlib.metadata import distribution
from importlib.resources import files
from pathlib import Path
from textwrap import indent

from msgspec import Struct

from duckkb import atomic_write, config
from duckkb.storage import clone_state, git_process, layout, repository
from duckkb.types.errors import UsageError

_WORKFLOWS = ".github/workflows"
_TARGETS = {
    f"{_WORKFLOWS}/duckkb-check.yml": "duckkb-check.yml",
    f"{_WORKFLOWS}/duckkb-review.yml": "duckkb-review.yml",
    f"{_WORKFLOWS}/duckkb-comment.yml": "duckkb-comment.yml",
    layout.INDEX_WORKFLOW: "duckkb-index.yml",
    ".pre-commit-config.yaml": "pre-commit-config.yaml",
}


_UNKNOWN = "git+https://HOST/OWNER/duckkb"
"""A placeholder for an address that is not known yet; a commit follows it."""
_COMMIT = "COMMIT"
_EXAMPLE = f"duckkb init --github --install {_UNKNOWN}@{_COMMIT}"
_OWN = "."
"""The address of duckkb's own repository, whose workflows install what they check out."""
_IS_HERE = re.compile(r"\w+://([^/@]*@)?(localhost|127\.|\[::1\])")
_PINNED = re.compile(r"git\+(https|ssh)://[!-~]+@[0-9a-f]{7,64}(#[!-~]*)?")
_PACKAGE = re.compile(r"https://[!-~]+\.(whl|tar\.gz|zip)(#[!-~]*)?")
_INSTALLING = re.compile(r"(?<=pip install --disable-pip-version-check ).+")
_PLACEHOLDER = re.compile(rf"{re.escape(_UNKNOWN)}@\w+")


class Hosted(Struct, frozen=True):
    """Files written for a forge, relative to `top`, the top of the repository.

    `kept` are existing files with other content, which stay. `install` is the address from which workflows
    install duckkb; `keys` are the secrets that they pass to models, by name.
    """

    top: Path
    files: tuple[str, ...]
    kept: tuple[str, ...]
    install: str
    keys: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """The steps left at the forge before the workflows can run."""
        address_note = f"The workflows fail until they know where duckkb is installed from: {_EXAMPLE}"
        models = (
            "The nightly job needs the repository's variable DUCKKB_TRUST (the `hash` of `duckkb trust --show`) and the "
            f"secret {', '.join(self.keys)}"
        )
        needs_address = self.install.startswith(_UNKNOWN) and any(file.startswith(_WORKFLOWS) for file in self.files)
        return (*((address_note,) if needs_address else ()), *((models,) if self.keys else ()))


def github(root: Path, install: str | None = None, keys: Sequence[str] = ()) -> Hosted:
    """Write the workflows for a base, at the top of its repository.

    `install` is the address of duckkb as pip takes it (`git+https://HOST/OWNER/duckkb@COMMIT`). It defaults to
    the source of this copy; where no other machine could reach that, it is a placeholder at which the workflows
    fail. `.` is for duckkb's own repository. A file with the placeholder is rewritten. In a file that installs
    from elsewhere than a given `install`, only that line changes. `keys` are variables of the models' keys.
    Raises `errors.UsageError`: E_PATH for a place behind a link, or outside the base in a sandbox; E_USAGE for
    an `install` that others cannot use.
    """
    checkout = git_process.find_repository(root)
    top = checkout.work_tree if checkout else root.resolve()
    address = _check_address(install, top) if install is not None else _find_origin()
    if config.environment().sandbox and top != root.resolve():
        raise UsageError(
            f"the workflows belong into {top}, which is outside of the base, and DUCKKB_SANDBOX is set", code="E_PATH"
        )
    place = root.resolve().relative_to(top).as_posix()
    _refuse_links(top)
    new_files, kept_files = [], []
    for target, template in _TARGETS.items():
        text, path = _fill_template(template, place, _find_main_branch(root), address, keys), top / target
        if not os.path.lexists(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic_write.write_new(path, text.encode())
            new_files.append(target)
        elif path.is_symlink() or (present := path.read_bytes()) != text.encode():
            old = None if path.is_symlink() else _PLACEHOLDER.search(present.decode("utf-8", "replace"))
            if (
                old is not None
                and _fill_template(template, place, _find_main_branch(root), old[0], keys).encode() == present
            ):
                clone_state.write_atomic(path, text.encode())
            elif install is not None and old is None and (new_content := _replace_install(path, text)) is not None:
                clone_state.write_atomic(path, new_content)
            else:
                kept_files.append(target)
                continue
            new_files.append(target)
    return Hosted(top, tuple(new_files), tuple(kept_files), address, tuple(keys))


def _find_main_branch(root: Path) -> str:
    """Return the main branch: the remote's, else the one checked out."""
    here = repository.branch(root)
    return repository.default_branch(root) or (here if here != repository.head_commit(root) else "") or "main"


def _check_address(install: str, top: Path) -> str:
    """Return the checked address, or `.` where the repository is duckkb's own."""
    is_own = (top / "duckkb" / "__main__.py").is_file() and (top / "pyproject.toml").is_file()
    if install != _OWN or not is_own:
        refuse_address(install)
    return install


def refuse_address(install: str) -> None:
    """Raise `errors.UsageError` (E_USAGE) for anything but an address of an exact commit, or of a file for pip.

    A bare name is refused: nobody owns it on the package index, and whoever took it would run in the jobs.
    """
    is_address = re.fullmatch(r"(git\+https|git\+ssh|https)://[!-~]+", install)
    if not is_address or re.search(r"""['"`\\$]""", install) or _strip_secrets(install) != install:
        message = f"a forge cannot install duckkb from {install!r}: give an https or ssh address without a password"
        raise UsageError(message, suggestion=_EXAMPLE)
    if not (_PINNED if install.startswith("git+") else _PACKAGE).fullmatch(install):
        repository_url = re.sub(r"(?<=[^/@])@[^/@]*$", "", install.removeprefix("git+").partition("#")[0]).rstrip("/")
        why = (
            "names no commit, and a branch or tag can move"
            if install.startswith("git+")
            else "is a page, not a package"
        )
        message = (
            f"{install!r} {why}: give git+https://HOST/OWNER/duckkb@COMMIT, or the URL of a wheel (.whl, .tar.gz, .zip)"
        )
        raise UsageError(message, suggestion=_suggest_install(install, repository_url))


def _suggest_install(install: str, repository_url: str) -> str:
    """Return the command that continues after an address without a commit, with this duckkb's own commit.

    Where that is unknown, the command has placeholders to fill in.
    """
    if not install.startswith(_UNKNOWN):
        return f"duckkb init --github --install git+{repository_url}@{_COMMIT}"
    if not (address := _find_origin()).startswith(_UNKNOWN):
        return f"duckkb init --github --install {address}"
    command = f"git -C {shlex.quote(str(Path(str(files('duckkb'))).parent))} remote -v"
    return f"HOST/OWNER is where your duckkb is hosted (`{command}`), {_COMMIT} the hash of a commit of it"


def _replace_install(path: Path, text: str) -> bytes | None:
    """Return an existing file with its install line as in `text`; None where it has no such line, or the same."""
    present, (line, *_) = path.read_text("utf-8", "surrogateescape"), [*_INSTALLING.findall(text), ""]
    new_text = _INSTALLING.sub(lambda _: line, present) if line else present
    return new_text.encode("utf-8", "surrogateescape") if new_text != present else None


def _find_origin() -> str:
    """Return this duckkb's source, exact to the commit: from pip's record (PEP 610), or from its checkout.

    Returns the placeholder where that is an address of this machine, or unknown.
    """
    pip_record = json.loads(distribution("duckkb").read_text("direct_url.json") or "{}")
    by_git = pip_record.get("vcs_info", {})
    if by_git.get("vcs") == "git":
        return _pin(pip_record["url"], by_git["commit_id"])
    place = Path(str(files("duckkb"))).parent
    commit = repository.head_commit(place) if (place / ".git").exists() else None
    return _pin(repository.address_of_origin(place) if commit else "", commit or _COMMIT)


def _pin(remote: str, commit: str) -> str:
    address = _convert_to_url(remote)
    return f"git+{address}@{commit}" if address else f"{_UNKNOWN}@{commit}"


def _convert_to_url(remote: str) -> str:
    """Convert a remote to pip's form; empty where other machines cannot reach it, or a file cannot hold it."""
    if by_ssh := re.fullmatch(r"([\w.-]+@[\w.-]+):(?!//)([\w./~-]+)", remote):
        return f"ssh://{by_ssh[1]}/{by_ssh[2]}"
    is_safe = re.fullmatch(r"(https|ssh)://[!-~]+", remote) and not re.search(r"""['"`\\$]""", remote)
    return _strip_secrets(remote) if is_safe and not _IS_HERE.match(remote) else ""


def _strip_secrets(url: str) -> str:
    """Remove the password from a URL, and over https the user, since credentials must not be committed."""
    return re.sub(r"^((?:git\+)?(?:https://|ssh://(?=[^/@]*:[^/@]*@)))[^/@]*@", r"\1", url)


def _fill_template(template: str, place: str, branch: str, address: str, keys: Sequence[str]) -> str:
    """Fill in a template: the base's place, the main branch, duckkb's source, and the secrets of models."""
    text = _with_script(_with_script(_read(template), "DIFFERS", "differs.sh"), "BASE", "base.sh")
    if address.startswith(_UNKNOWN):
        text = _with_script(text, "UNFILLED", "unfilled.sh")
        text = text if "id: base" in text else text.replace("        if: steps.base.outputs.differs == 'true'\n", "")
    kb = "" if place == "." else f"--kb {shlex.quote(place)} "
    variables = ["DUCKKB_TRUST: ${{ vars.DUCKKB_TRUST }}", *(f"{key}: ${{{{ secrets.{key} }}}}" for key in keys)]
    requirements = [f"'duckkb{extra} @ {address}'" for extra in ("", "[local]")]
    local_paths = [f'"$GITHUB_WORKSPACE{extra}"' for extra in ("", "[local]")]
    plain, local = local_paths if address == _OWN else requirements
    values = {
        "ADDRESS": address,
        "KB": json.dumps(place, ensure_ascii=False),
        "BRANCH": json.dumps(branch, ensure_ascii=False),
        "INSTALL": plain,
        "INSTALL_LOCAL": local,
        "CHECK": json.dumps(f"duckkb {kb}check --staged", ensure_ascii=False),
        "INDEX": json.dumps(f"duckkb {kb}index build", ensure_ascii=False),
    }
    text = re.sub(r" *@UNFILLED@\n", "", text)
    text = re.sub(r"( *)@MODELS@", lambda match: indent("\n".join(variables), match[1]), text)
    return re.sub(r"@([A-Z_]+)@", lambda match: values[match[1]], text)


def _with_script(text: str, mark: str, script: str) -> str:
    """Replace a mark in the text by a script, indented as the mark is."""
    body = _read(script).rstrip("\n")
    return re.sub(rf"( *)@{mark}@", lambda match: indent(body, match[1]), text)


def _read(template: str) -> str:
    return (files("duckkb.operations") / "templates" / template).read_text("utf-8")


def _refuse_links(top: Path) -> None:
    """Refuse links where files would be written; a clone may bring them."""
    for name in (".github", _WORKFLOWS):
        if (top / name).is_symlink():
            raise UsageError(f"{top / name} is a link", code="E_PATH", suggestion="remove it, then do this again")
