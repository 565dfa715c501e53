"""Checks of the machine: Python, libraries, clock, limits, and the place of the base; and of the engines, which
are run.

Checks of the git repository around the base: that it exists, is whole, and stores the files byte for byte."""

import math
import os
import re
import shutil
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from pathlib import Path
from typing import TYPE_CHECKING

from duckkb.index.chinese import chinese_words, reference_words
from duckkb.ports import Embedder
from duckkb.review.base_health import Look, Problem, Skipped, Surroundings, Verdict, error, make_warning
from duckkb.review.report_markup import many
from duckkb.storage import clone_state, git_facts, git_process, layout, repository
from duckkb.store.cache_dirs import BASES, Place, is_sealed
from duckkb.types.codes import CODES
from duckkb.types.errors import Unavailable
from duckkb.types.settings import DEFAULT_MODEL

if TYPE_CHECKING:
    import numpy as np

EARLIEST = "2025-01-01T00:00:00.000000Z"
"""The earliest time of a correct clock: duckkb did not exist before."""
LEAST_BYTES = 100 * 1024 * 1024
LEAST_INODES = 1_000
LEAST_FILES = 256
LEAST_FILE_BYTES = 512 * 1024 * 1024

_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(?:\[[^]]*\])?\s*(?P<bounds>[^;]*)(?:;(?P<marker>.*))?")
_EXTRA = re.compile(r"extra\s*==\s*['\"]([\w-]+)['\"]")
_NUMERIC = re.compile(r"[^0-9.]")
_BOUND = re.compile(r"(>=|<=|==|!=|<|>)\s*([0-9][0-9.]*)")
_ENGLISH = "The journal is sealed before any file changes."
_CHINESE = "在任何文件改变之前，日志先被封存。"
_ELSEWHERE = "香蕉是黄色的，味道很甜。"
_RUNS = ("我们在北京大学学习知识库与全文检索", "数据在崩溃之后恢复", "研究生命起源")
_OFF_UNIT = 1e-3
_ALIKE = 0.9999


def python(ground: Surroundings) -> Verdict:
    try:
        bounds = str(metadata("duckkb")["Requires-Python"])
    except PackageNotFoundError:
        raise Skipped("duckkb runs from a folder and not as a package") from None
    python_version = ".".join(map(str, sys.version_info[:2]))
    if not is_within(python_version, bounds):
        yield error(f"Python {python_version} is not in {bounds}", "rebuild the environment with a Python that is")
    return f"Python {python_version}"


def libraries(ground: Surroundings) -> Verdict:
    requirements = _list_requirements("")
    yield from _unfit(requirements, "pip install --upgrade duckkb")
    return f"{len(requirements)} as pyproject.toml asks"


def local_extra(ground: Surroundings) -> Verdict:
    """Check the optional libraries of the offline model, which are needed where the base names it."""
    is_necessary = ground.wiring.settings.embedding.model == DEFAULT_MODEL
    return (yield from _check_extra("local", is_necessary, "this base does not name the offline model"))


def ann_extra(ground: Surroundings) -> Verdict:
    """Check the optional library of graphs, which is needed where a type's vectors are to be compared by one."""
    settings = ground.wiring.settings
    is_necessary = any(
        kind.vectors and kind.settings(settings).vectors.ann == "hnsw" for kind in ground.wiring.ontology
    )
    return (yield from _check_extra("ann", is_necessary, "no type of this base asks for a graph"))


def _check_extra(extra: str, is_necessary: bool, reason: str) -> Verdict:
    requirements = _list_requirements(extra)
    missing = [name for name, _ in requirements if _find_version(name) is None]
    if missing and is_necessary:
        yield make_warning(f"not installed: {', '.join(missing)}", f"pip install 'duckkb[{extra}]'")
    elif missing:
        part = "" if len(missing) == len(requirements) else f" ({', '.join(missing)} is missing)"
        return f"not installed{part}, and {reason}"
    else:
        present = [(name, bounds) for name, bounds in requirements if name not in missing]
        yield from _unfit(present, f"pip install --upgrade 'duckkb[{extra}]'")
    return "installed"


def clock(ground: Surroundings) -> Verdict:
    now = ground.clock.now()
    if now < EARLIEST:
        yield make_warning(f"the clock shows a time before {EARLIEST[:4]}", "set the system's clock")
        return ""
    tree = ground.base.tree
    newest = max((row.record.updated_at for kind in tree.ontology for row in tree.rows(kind)), default="")
    if now < newest:
        message = f"the newest record was changed at {newest}, later than now by this clock"
        yield make_warning(message, "set the system's clock; if it is right, another writer's was not")
    return "later than every record's time"


def limits(ground: Surroundings) -> Verdict:
    if sys.platform == "win32":
        raise Skipped("this system has no limits of this kind")
    import resource

    files, size = (resource.getrlimit(name)[0] for name in (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE))
    if files != resource.RLIM_INFINITY and files < LEAST_FILES:
        yield make_warning(f"only {files} files may be open at once", "ulimit -n 1024")
    if size != resource.RLIM_INFINITY and size < LEAST_FILE_BYTES:
        yield make_warning(f"a file may not grow over {size} bytes", "ulimit -f unlimited")
    return "enough open files, no limit on their size"


def is_within(found: str, bounds: str) -> bool:
    """Return whether a version is within bounds as package metadata writes them; other forms of bounds always
    hold.

    >>> is_within("1.5.6", "<2,>=1.5.5"), is_within("2.0.0", "<2,>=1.5.5"), is_within("0.3", "==0.3.0")
    (True, False, True)
    """
    have = _parse_version(found)
    for sign, limit in _BOUND.findall(bounds):
        order = (have > _parse_version(limit)) - (have < _parse_version(limit))
        if order not in {">=": (0, 1), "<=": (0, -1), "==": (0,), "!=": (-1, 1), "<": (-1,), ">": (1,)}[sign]:
            return False
    return True


def _parse_version(text: str) -> tuple[int, ...]:
    """Return the numeric parts of a version, without zeros at the end."""
    parts = [int(part) for part in _NUMERIC.split(text)[0].split(".") if part]
    while parts and not parts[-1]:
        parts.pop()
    return tuple(parts)


def _list_requirements(extra: str) -> list[tuple[str, str]]:
    """Return (package, bounds) pairs that duckkb requires, always or with one extra."""
    try:
        lines = requires("duckkb") or []
    except PackageNotFoundError:
        raise Skipped("duckkb runs from a folder and not as a package") from None
    matches = [match for line in lines if (match := _REQUIREMENT.match(line))]
    extras = [extra] if extra else []
    return [
        (match["name"], match["bounds"].strip()) for match in matches if _EXTRA.findall(match["marker"] or "") == extras
    ]


def _unfit(requirements: Sequence[tuple[str, str]], remedy: str) -> Iterator[Problem]:
    for name, bounds in requirements:
        installed_version = _find_version(name)
        if installed_version is None:
            yield error(f"{name} is not installed", remedy)
        elif not is_within(installed_version, bounds):
            yield error(f"{name} {installed_version} is not in {bounds}", remedy)


def _find_version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def file_system(ground: Surroundings) -> Verdict:
    yield from judge_file_system(ground.root, clone_state.file_system(ground.root))
    return "a local one, where locks hold"


def judge_file_system(root: Path, kind: str) -> Iterator[Problem]:
    """Yield the problems of a base on a file system of this type, and of its folders' places."""
    if clone_state.is_remote(kind):
        message = f"the base is on {kind}, where locks may not work between machines"
        yield make_warning(message, "keep the base on a local disk, and share it with git")
    data, state_folder = root / "data", clone_state.folder_of(root)
    if data.is_dir() and state_folder.is_dir() and data.stat().st_dev != state_folder.stat().st_dev:
        message = "data/ and .duckkb/ are on two file systems, so files cannot be moved in one step"
        yield error(message, "keep both on one file system")


def disk(ground: Surroundings) -> Verdict:
    free = shutil.disk_usage(ground.root).free
    facts = os.statvfs(ground.root) if hasattr(os, "statvfs") else None
    yield from room(free, facts.f_favail if facts and facts.f_files else None)  # some file systems do not count inodes
    return "enough room"


def check_derived_state(ground: Surroundings) -> Verdict:
    """Check where derived state lies, who can read it, and whether it is sealed."""
    place = Place.locate(ground.env.cache_home, ground.root)
    if is_sealed(place.home / BASES):
        yield error("derived files are encrypted, and no key is set", "set DUCKKB_ENCRYPTION_KEY")
    if place.sealed is None:
        return f"in {_describe_folder(place.home)}, not sealed"
    if swaps():
        yield make_warning("swap is on, and decrypted memory may be written to it", "swapoff -a, or encrypt the swap")
    return f"sealed in {_describe_folder(place.sealed)}, opened in {_describe_folder(place.home)}"


def swaps(said: Path = Path("/proc/swaps")) -> bool:
    """Return whether memory may be swapped to a disk; False where that is unknown."""
    try:
        return len(said.read_text().splitlines()) > 1
    except OSError:
        return False


def _describe_folder(folder: Path) -> str:
    try:
        return f"{folder} ({stat.S_IMODE(folder.stat().st_mode):04o})"
    except OSError:
        return f"{folder} (does not exist yet)"


def room(free: int, inodes: int | None) -> Iterator[Problem]:
    """Yield problems of free bytes and inodes; without amounts, so that equal states give equal messages."""
    if free < LEAST_BYTES:
        message = f"less than {LEAST_BYTES // 1024 // 1024} MB are free on the disk of the base"
        yield make_warning(message, "free space on this disk")
    if inodes is not None and inodes < LEAST_INODES:
        yield make_warning(
            f"fewer than {LEAST_INODES:,} more files fit on the disk of the base", "remove files from this disk"
        )


def model(ground: Surroundings) -> Verdict:
    """Run the model on one English and one Chinese sentence and a question."""
    settings = ground.wiring.settings.embedding
    if settings.model == "none":
        raise Skipped("no embedding model (embedding_model: none)")
    embedder = ground.wiring.embedder
    again = (
        "pip install --force-reinstall 'duckkb[local]'" if settings.address is None else "ask the operator of the model"
    )
    try:
        wrong = _find_fault(embedder, is_multilingual=embedder.fingerprint.name == DEFAULT_MODEL)
    except Unavailable as problem:
        if problem.code == "E_UNTRUSTED":
            raise Skipped(problem.message) from problem
        wrong, again = problem.message, problem.suggestion or "see global.embedding in config.yaml"
    if wrong:
        yield error(wrong, again)
        return ""
    return f"{embedder.fingerprint.name} answers in English and Chinese"


def _find_fault(embedder: Embedder, *, is_multilingual: bool) -> str:
    texts = [_ENGLISH, _CHINESE, _ELSEWHERE]
    passages, questions = embedder.embed_passages(texts), embedder.embed_queries([_ENGLISH])
    dimension = embedder.fingerprint.dimension or passages.shape[-1]
    if passages.shape != (len(texts), dimension) or questions.shape != (1, dimension):
        return f"it gives vectors of shape {passages.shape} and {questions.shape}, expected {dimension} numbers a text"
    rows = [*passages, *questions]
    if not all(math.isfinite(float(number)) for row in rows for number in row):
        return "it gives numbers that are not finite"
    if any(abs(_compute_cosine(row, row) - 1.0) > _OFF_UNIT for row in rows):
        return "it gives vectors that are not of unit length"
    same, translation, elsewhere = (_compute_cosine(row, questions[0]) for row in passages)
    if max(_compute_cosine(passages[0], passages[1]), _compute_cosine(passages[1], passages[2])) > _ALIKE:
        return "it gives different texts one vector"
    if same <= max(translation, elsewhere):
        return "a text is not nearest to itself"
    if is_multilingual and translation <= elsewhere:
        return "a sentence is nearer to another subject than to its own translation"
    return ""


def _compute_cosine(first_vector: "np.ndarray", second_vector: "np.ndarray") -> float:
    return float(first_vector @ second_vector)


def segmenters(ground: Surroundings) -> Verdict:
    """Compare the fast segmenter with the one that it replaces. Neither may write: no folder is given."""
    fast, reference = chinese_words(None), reference_words(None)
    if fast is reference:
        yield make_warning("rjieba is not installed; jieba does its work, slower", "pip install --upgrade duckkb")
    elif odd := [run for run in _RUNS if fast(run) != reference(run)]:
        yield error(f"rjieba and jieba cut these differently: {', '.join(odd)}", "pip install --upgrade duckkb")
    return "rjieba and jieba agree"


def self_test(name: str, remedy: str) -> Look:
    """Return the check that runs a self test of the backend."""

    def look(ground: Surroundings) -> Verdict:
        try:
            ground.self_tests[name]()
        except AssertionError as wrong:
            yield error(str(wrong), remedy)
        except ImportError as problem:
            yield error(f"it cannot be loaded: {problem}", remedy)
        return "answers as it should"

    return look


OLDEST = (2, 30)
_PART = "data/nodes/any/20260101/part_000.jsonl"
_CACHE = "data/indices/search_cache.parquet"
_WANTED = {_PART: {"text": "set", "eol": "lf"}, _CACHE: {"text": "unset"}}


def git(ground: Surroundings) -> Verdict:
    version = git_process.version()
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
    if git_process.version() is None:
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
    findings = list(git_facts.findings(ground.root))
    if left_out := [finding.path for finding in findings if finding.is_error]:
        yield error(git_facts.describe_absent(left_out), git_facts.remedy(ground.root, left_out))
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
