"""The other base that this clone's vector actions use: a file in `.duckkb/`, so that no clone brings one along."""

import json
import os
from pathlib import Path

from duckkb.errors import StateError
from duckkb.truth import state
from duckkb.truth.layout import read_regular

MENDED_BY = "`duckkb vector set-database PATH`, or `.` for this base"


def exists(root: Path) -> bool:
    """Return whether another base is set, without reading the file."""
    return os.path.lexists(state.folder_of(root) / state.VECTORS)


def read(root: Path) -> Path:
    """Return the folder that is set, resolved. Raises `errors.StateError` for an empty file, or a file that was
    written for a base in another place.
    """
    try:
        fields = json.loads(read_regular(state.folder_of(root) / state.VECTORS)[0])
        target, place = (root / str(fields["target"])).resolve(), fields["base"]
    except OSError as error:
        raise _build_error(f"cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise _build_error("is damaged") from error
    home = root.resolve()
    if place != str(home) and not target.is_relative_to(home):
        raise _build_error("was written when this base stood in another place")
    return target


def write(root: Path, target: Path | None) -> None:
    """Set the folder; None lets the base use itself again. Raises `errors.Unavailable` (E_READ_ONLY, E_IO)."""
    path = state.ensure(root) / state.VECTORS
    if target is None:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise state.refusal(f"{path.name} cannot be removed", error) from error
        return
    home = root.resolve()
    # A folder inside the base moves with it; any other folder was set for the base's present place.
    stored_target = target.relative_to(home) if target.is_relative_to(home) else target
    state.write_atomic(path, json.dumps({"base": str(home), "target": str(stored_target)}).encode() + b"\n")


def _build_error(why: str) -> StateError:
    return StateError(
        f"{state.FOLDER}/vectors.json, which names the base of the vector actions, {why}", suggestion=MENDED_BY
    )
