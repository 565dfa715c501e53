"""The version of an installed package, read from where its module lies: `importlib.metadata` alone takes 15 ms to import."""

from importlib.util import find_spec
from pathlib import Path

_running: str | None = None


def version_of(package: str, module: str) -> str:
    """As `importlib.metadata.version`, which is asked where the package cannot be read at a glance; raises
    `PackageNotFoundError`. Loads no module of the package."""
    spec = find_spec(module)
    metadata_paths = _find_metadata(Path(spec.origin), package) if spec and spec.origin else []
    if len(metadata_paths) == 1:
        with metadata_paths[0].open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if line.startswith("Version:"):
                    return line.removeprefix("Version:").strip()
                if not line.strip():  # what follows is the description
                    break
    from importlib.metadata import version

    return version(package)


def current() -> str | None:
    """The version of duckkb that lies on the disk now; None where there is none."""
    from importlib.metadata import PackageNotFoundError

    try:
        return version_of("duckkb", "duckkb")
    except (PackageNotFoundError, OSError, ValueError):
        return None


def remember_running() -> None:
    """What lies on the disk now is what this process runs, for as long as it does."""
    global _running
    _running = current()


def get_running_version() -> str | None:
    """The version that was remembered; None where none was."""
    return _running


def describe_replacement() -> str:
    """Why no process of the version that runs here can be started any more; empty where one can."""
    if _running is None or (now := current()) == _running:
        return ""
    return f"this process runs duckkb {_running}, and {now or 'none'} is installed now"


def _find_metadata(origin: Path, package: str) -> list[Path]:
    """What describes the package, in the folder that holds its module."""
    home = origin.parent.parent if origin.stem == "__init__" else origin.parent
    return list(home.glob(f"{package.replace('-', '_')}-*.dist-info/METADATA"))
