"""The version of an installed package, read from the folder of its module.

`importlib.metadata` is avoided where possible: it takes 15 ms to import.
"""

from importlib.util import find_spec
from pathlib import Path

_running: str | None = None


def version_of(package: str, module: str) -> str:
    """Return the version of a package as `importlib.metadata.version` does, without loading a module of it.

    Falls back to `importlib.metadata` where the folder of `module` does not tell. Raises `PackageNotFoundError`.
    """
    spec = find_spec(module)
    metadata_paths = _find_metadata(Path(spec.origin), package) if spec and spec.origin else []
    if len(metadata_paths) == 1:
        with metadata_paths[0].open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if line.startswith("Version:"):
                    return line.removeprefix("Version:").strip()
                if not line.strip():  # the description follows
                    break
    from importlib.metadata import version

    return version(package)


def current() -> str | None:
    """Return the version of duckkb on the disk now; None where there is none."""
    from importlib.metadata import PackageNotFoundError

    try:
        return version_of("duckkb", "duckkb")
    except (PackageNotFoundError, OSError, ValueError):
        return None


def remember_running() -> None:
    """Remember the version on the disk now as the version that this process runs."""
    global _running
    _running = current()


def get_running_version() -> str | None:
    """Return the remembered version; None before `remember_running`."""
    return _running


def describe_replacement() -> str:
    """Return why no process of the running version can be started any more; empty where it can."""
    if _running is None or (now := current()) == _running:
        return ""
    return f"this process runs duckkb {_running}, and {now or 'none'} is installed now"


def _find_metadata(origin: Path, package: str) -> list[Path]:
    """Return the metadata folders of the package beside the module at `origin`."""
    home = origin.parent.parent if origin.stem == "__init__" else origin.parent
    return list(home.glob(f"{package.replace('-', '_')}-*.dist-info/METADATA"))
