"""What lies below `data/`: the parts, and a finding for everything that is none."""

import os
from collections.abc import Callable, Iterator
from operator import attrgetter
from pathlib import Path

from duckkb.codes import CODES
from duckkb.errors import Finding, Unavailable
from duckkb.ontology.model import Ontology, RecordType
from duckkb.truth.layout import DATA, FOLDERS, Kind, is_day, is_part, safe_table_name
from duckkb.values import dataclass, field

_TOP = {"nodes": True, "edges": True, "indices": True, "FORMAT.json": False}
"""What may lie in `data/` itself, and whether it is a folder."""


@dataclass(slots=True)
class Survey:
    """The parts of the ontology's types with their stat and type, in path order, and what else was found; and by path the
    folders that were listed, with every name in them and whether that is a folder."""

    files: dict[str, os.stat_result] = field(default_factory=dict)
    folders: dict[str, dict[str, bool]] = field(default_factory=dict)
    kinds: dict[str, RecordType] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)


def survey(root: Path, ontology: Ontology) -> Survey:
    """Look at every path below `data/`, open none and follow no link. An absent `data/` holds nothing.

    Raises `Unavailable` (E_IO) for a folder that cannot be listed.
    """
    return _Surveyor(root, ontology).survey()


class _Surveyor:
    def __init__(self, root: Path, ontology: Ontology) -> None:
        self._root = root
        self._ontology = ontology
        self._found = Survey()

    def survey(self) -> Survey:
        top = [entry for entry in _entries(self._root, ".") if entry.name == DATA]
        if top and self._is_sound(top[0], DATA, folder=True):
            self._look_into_data()
        return self._found

    def _look_into_data(self) -> None:
        for entry in self._list(DATA):
            folder = _TOP.get(entry.name)
            if folder is None:
                self._report_unknown(entry, f"{DATA}/{entry.name}", "nothing of this name belongs here")
            elif self._is_sound(entry, f"{DATA}/{entry.name}", folder=folder):
                for kind in (kind for kind, name in FOLDERS.items() if name == entry.name):
                    self._look_into_tables(kind)

    def _look_into_tables(self, kind: Kind) -> None:
        path = f"{DATA}/{FOLDERS[kind]}"
        tables = {one.table: one for one in self._ontology if one.kind == kind and safe_table_name(one.table)}
        for name in self._folders(path, tables.__contains__, "no type of the ontology has this table or label"):
            for day in self._folders(f"{path}/{name}", is_day, "a day folder is named YYYYMMDD"):
                self._look_into_day(f"{path}/{name}/{day}", tables[name])

    def _look_into_day(self, path: str, kind: RecordType) -> None:
        files, kinds = self._found.files, self._found.kinds
        for entry in self._list(path):
            part = f"{path}/{entry.name}"
            if not is_part(entry.name):
                self._report_unknown(entry, part, "a part is named part_NNN.jsonl")
            elif entry.is_file(follow_symlinks=False) or self._is_sound(entry, part, folder=False):
                try:
                    files[part] = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                kinds[part] = kind

    def _list(self, path: str) -> list[os.DirEntry[str]]:
        entries = _entries(self._root, path)
        self._found.folders[path] = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
        return entries

    def _folders(self, path: str, is_known: Callable[[str], bool], otherwise: str) -> Iterator[str]:
        for entry in self._list(path):
            if not is_known(entry.name):
                self._report_unknown(entry, f"{path}/{entry.name}", otherwise)
            elif self._is_sound(entry, f"{path}/{entry.name}", folder=True):
                yield entry.name

    def _is_sound(self, entry: os.DirEntry[str], path: str, *, folder: bool) -> bool:
        is_folder = entry.is_dir(follow_symlinks=False)
        if entry.is_symlink():
            self._report("E_SYMLINK", "a link; links in data/ are not followed", path)
        elif is_folder != folder or not (is_folder or entry.is_file(follow_symlinks=False)):
            self._report("E_NOT_REGULAR", f"not a {'folder' if folder else 'regular file'}", path)
        else:
            return True
        return False

    def _report_unknown(self, entry: os.DirEntry[str], path: str, message: str) -> None:
        is_folder = entry.is_dir(follow_symlinks=False)
        if self._is_sound(entry, path, folder=is_folder):
            self._report("E_UNEXPECTED_FILE", message, path + "/" * is_folder)

    def _report(self, code: str, message: str, path: str) -> None:
        self._found.findings.append(Finding(code, message, path, remedy=CODES[code].remedy))


def _entries(root: Path, path: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(root / path) as entries:
            return sorted(entries, key=attrgetter("name"))
    except FileNotFoundError:
        return []
    except OSError as error:
        said = f"{path} cannot be listed: {error.strerror}"
        raise Unavailable(said, code="E_IO", suggestion=CODES["E_IO"].remedy) from error
