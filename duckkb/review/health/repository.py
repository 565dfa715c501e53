"""Checks of the git repository around the base: that it exists, is whole, and stores the files byte for byte."""

import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from duckkb.codes import CODES
from duckkb.review.health.check import Problem, Skipped, Surroundings, Verdict, error, make_warning
from duckkb.review.reports.markup import many
from duckkb.truth import layout
from duckkb.truth.git import absent, repository, run

OLDEST = (2, 30)
_PART = "data/nodes/any/20260101/part_000.jsonl"
_CACHE = "data/indices/search_cache.parquet"
_WANTED = {_PART: {"text": "set", "eol": "lf"}, _CACHE: {"text": "unset"}}


def git(ground: Surroundings) -> Verdict:
    version = run.version()
    if version is None:
        yield make_warning("git is missing on this machine; reviews and patches need it", "install git")
        return ""
    version_text = ".".join(map(str, version))
    if version < OLDEST:
        yield make_warning(f"git {version_text} is older than 2.30", "install a newer git")
    return f"git {version_text}"


def check_history(ground: Surroundings) -> Verdict:
    """Check the repository's own state."""
    git_repository = ground.repository
    if git_repository is None:
        yield make_warning("the base is in no git repository, so nothing keeps its history", "git init")
        return ""
    if run.version() is None:
        raise Skipped("git is missing")
    if not git_repository.readable:
        yield error("git cannot read its repository here", "git fsck, then fetch or clone what is missing")
        return ""
    if under_way := repository.operation_in_progress(ground.root):
        remedy = f"finish it, or git {under_way} --abort"
        yield make_warning(f"a {under_way} is under way, and writes refuse until it is over", remedy)
    if git_repository.shallow:
        yield make_warning("the clone is shallow: older history is not here", "git fetch --unshallow")
    if repository.settings(ground.root).get("core.bare") == "true":
        yield make_warning("core.bare is true, but a work tree exists", "git config core.bare false")
    return "a linked work tree" if git_repository.linked else "a repository with work tree"


def check_tracked_state(ground: Surroundings) -> Verdict:
    if repository.tracks_state(ground.root):
        yield error(CODES["E_TRACKED_STATE"].meaning.rstrip("."), "git rm -r --cached .duckkb && rm -r .duckkb")
    return "git tracks nothing in .duckkb/"


def attributes(ground: Surroundings) -> Verdict:
    """Check the git attributes: as git resolves them, since other files may override ours; without git, our lines."""
    root = ground.root
    if _is_odd(root / ".gitattributes"):
        yield error(".gitattributes is not a regular file", "rm -r .gitattributes; git checkout -- .gitattributes")
        return ""
    lacking, attributes_by_path = (
        list(_find_missing_lines(root)),
        {path: _read_attributes(ground, path) for path in _WANTED},
    )
    if any(path_attributes is None for path_attributes in attributes_by_path.values()):
        yield from lacking
        return ".gitattributes has the lines that init writes"
    for path, expected_values in _WANTED.items():
        path_attributes = attributes_by_path[path] or {}
        odd = {
            key: path_attributes.get(key, "")
            for key, value in expected_values.items()
            if path_attributes.get(key) != value
        }
        if odd and lacking:
            yield from lacking
        elif odd:
            overrides = ", ".join(f"{key} {value}" for key, value in odd.items())
            message = f"git uses other attributes for {path} than .gitattributes: {overrides}"
            yield make_warning(
                message, f"remove what overrides it: git check-attr -a -- {path}, .git/info/attributes, data/**"
            )
    if (filter_name := (attributes_by_path[_PART] or {}).get("filter", "unspecified")) not in ("unspecified", "unset"):
        remedy = "leave data/**/*.jsonl out of filters and LFS in .gitattributes"
        yield make_warning(f"parts go through the filter {filter_name}", remedy)
    return "parts are text with LF, the cache is binary"


def _is_odd(path: Path) -> bool:
    """Return whether a path is something else than a regular file; git would block on a FIFO."""
    return path.is_symlink() or (path.exists() and not path.is_file())


def _read_attributes(ground: Surroundings, path: str) -> dict[str, str] | None:
    if not ground.has_readable_repository or _is_odd(ground.root / ".gitattributes"):
        return None
    return repository.attributes(ground.root, path)


def _find_missing_lines(root: Path) -> Iterator[Problem]:
    """Yield the lines that `init` writes and that .gitattributes lacks."""
    try:
        present = (root / ".gitattributes").read_text("utf-8", "replace").splitlines()
    except OSError:
        present = []
    missing = [line for line in layout.ATTRIBUTES.splitlines() if line not in present and not line.startswith("#")]
    if missing:
        quoted_lines = " ".join(f"'{line}'" for line in missing)
        message = f".gitattributes lacks {many(len(missing), 'line')} that `duckkb init` writes"
        yield make_warning(message, f"printf '%s\\n' {quoted_lines} >> .gitattributes")


def git_settings(ground: Surroundings) -> Verdict:
    ground.need_repository()
    eol, folds_case = (_read_attributes(ground, _PART) or {}).get("eol", ""), (ground.root / "CONFIG.YAML").exists()
    yield from risks(repository.settings(ground.root), eol, sys.platform, folds_case=folds_case)
    return "nothing in git's settings changes files or names"


def risks(settings: Mapping[str, str], eol: str, platform: str, *, folds_case: bool) -> Iterator[Problem]:
    """Yield the problems that git's settings may cause for files of this base.

    `eol` is the attribute of parts, which has priority; `folds_case`: the file system takes `A` and `a` for one name.
    """
    turns = settings.get("core.autocrlf") == "true" or settings.get("core.eol") == "crlf"
    if turns and eol != "lf":
        message = "git would turn line ends into CR LF at check-out, which are errors in parts"
        yield make_warning(message, "git config core.autocrlf false && git config core.eol lf")
    ignores = settings.get("core.ignorecase", "false") == "true"
    if ignores != folds_case:
        message = f"core.ignorecase is {str(ignores).lower()}, which is not what this file system does"
        yield make_warning(message, f"git config core.ignorecase {str(folds_case).lower()}")
    if platform == "darwin" and settings.get("core.precomposeunicode") == "false":
        message = "core.precomposeunicode is false: names with accents would count as two"
        yield make_warning(message, "git config core.precomposeunicode true")


def checkout(ground: Surroundings) -> Verdict:
    ground.need_repository()
    findings = list(absent.findings(ground.root))
    if left_out := [finding.path for finding in findings if finding.is_error]:
        yield error(absent.describe_absent(left_out), absent.remedy(ground.root, left_out))
    else:
        yield from (make_warning(f"{finding.path}: {finding.message}", finding.remedy) for finding in findings)
    return "git leaves out no file of the base"


def lfs(ground: Surroundings) -> Verdict:
    findings = [entry for entry in ground.report.findings if entry.code == "E_POINTER"]
    is_truth = bool(findings)
    findings += [entry for entry in ground.base.cache.findings if "LFS pointer" in entry.message]
    if findings:
        fetch = "git lfs pull" if shutil.which("git-lfs") else "install git-lfs, then git lfs pull"
        paths = ", ".join(sorted(finding.path for finding in findings)[:3])
        message = f"{many(len(findings), 'file')} came as LFS pointers, without content: {paths}"
        yield error(message, fetch) if is_truth else make_warning(message, f"{fetch}, or duckkb index build")
    return "no file is an LFS pointer"
