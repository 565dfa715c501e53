"""The version of an installed package, read from where its module lies: `importlib.metadata` alone takes 15 ms to import."""

from importlib.util import find_spec
from pathlib import Path


def version_of(package: str, module: str) -> str:
    """As `importlib.metadata.version`, which is asked where the package cannot be read at a glance; raises
    `PackageNotFoundError`. Loads no module of the package."""
    spec = find_spec(module)
    found = _beside(Path(spec.origin), package) if spec and spec.origin else []
    if len(found) == 1:
        with found[0].open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if line.startswith("Version:"):
                    return line.removeprefix("Version:").strip()
                if not line.strip():  # what follows is the description
                    break
    from importlib.metadata import version

    return version(package)


def _beside(origin: Path, package: str) -> list[Path]:
    """What describes the package, in the folder that holds its module."""
    home = origin.parent.parent if origin.stem == "__init__" else origin.parent
    return list(home.glob(f"{package.replace('-', '_')}-*.dist-info/METADATA"))
