"""The program that git runs once per file: merge driver, merge-base driver and textconv.

The calls are `merge BASE OURS THEIRS SIZE PATH`, `merge-base BASE ONE OTHER PATH` for two merge bases that
become one, and `textconv FILE`. `git install` writes the command lines that lead here. It needs only the
standard library, so it starts fast. Its exit codes are unique: a missing interpreter, a missing package, a
signal and a crash give others, and the command line then falls back to `git merge-file` or `cat`. Nothing is
written before the whole result is known.
"""

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from duckkb import atomic_write

if TYPE_CHECKING:
    from duckkb.storage.field_merge import MergeRules
    from duckkb.storage.merge_rules import RulesByTable
    from duckkb.storage.table_merge import TableMerge

CLEAN, CONFLICT = 40, 41
_PATH = re.compile(r"(.*?)(data/(?:node|edge)s/[^/]+/[0-9]{8}/part_[0-9]{3,}\.jsonl)")


def main(arguments: Sequence[str]) -> int:
    match arguments:
        case ["merge", base, ours, theirs, size, path]:
            return merge([Path(base), Path(ours), Path(theirs)], int(size), path)
        case ["merge-base", *files, path] if len(files) == 3:
            return merge_bases([Path(file) for file in files], path)
        case ["textconv", file]:
            return textconv(Path(file))
    print("git runs this; `duckkb git install` tells it how", file=sys.stderr)
    return 2


def merge(files: Sequence[Path], size: int, path: str) -> int:
    """Merge three versions by records into the second file; `path` is the part's from the top of the work tree."""
    result = _merge_part(files, path)
    if result is None:
        return 2
    outcome, data, table = result
    if outcome.conflicts and size != 7:
        from duckkb.storage import merge_rules

        data = merge_rules.join_blocks(merge_rules.read_blocks(data) or [], size)
    atomic_write.replace_file(files[1], data, durable=False)
    if not data.strip():
        print(f"duckkb: no record is left in {path}; `duckkb fmt` removes it", file=sys.stderr)
    for entry in outcome.conflicts:
        fields = " ".join(filter(None, entry.block.open_fields(table)))
        print(f"duckkb: both sides changed {table.name}:{entry.identity} {fields}".rstrip(), file=sys.stderr)
    return CONFLICT if outcome.conflicts else CLEAN


def merge_bases(files: Sequence[Path], path: str) -> int:
    """Merge bases by records into the second file; conflicts stay unchanged, so that the merge itself finds them."""
    result = _merge_part(files, path, is_base=True)
    if result is None:
        return 2
    atomic_write.replace_file(files[1], result[1], durable=False)
    return CLEAN


def _merge_part(
    files: Sequence[Path], path: str, *, is_base: bool = False
) -> "tuple[TableMerge, bytes, MergeRules] | None":
    """Merge three versions of a part, `path` from the top of the work tree; None for other files."""
    from duckkb.storage import table_merge
    from duckkb.storage.layout import EMPTIED

    match = _PATH.fullmatch(path)
    key = table_merge.table_of(match[2]) if match else None
    if match is None or key is None:
        return None
    part, table = match[2], _load_rules(Path(match[1] or ".")).get_rules(key)
    base, ours, theirs = ({part: file.read_bytes()} for file in files)
    outcome = table_merge.merge_table(base, ours, theirs, table, is_base=is_base)
    return outcome, outcome.parts[part] or EMPTIED, table


def textconv(file: Path) -> int:
    """Print a part with a line for each field, so that `git diff` shows which of them changed."""
    from duckkb.storage.source_text import split

    output = []
    for line in file.read_bytes().split(b"\n"):
        try:
            fields = split(line) if line.startswith(b"{") else None
        except ValueError:
            fields = None
        if fields is None:
            output.append(line + b"\n" if line else b"")
        else:
            output += [f"{key}: {value}\n".encode() for key, value in fields.values()]
            output.append(b"\n")
    sys.stdout.buffer.write(b"".join(output))
    sys.stdout.buffer.flush()
    return 0


def _load_rules(root: Path) -> "RulesByTable":
    """Load the merge rules of a base; None from a `.duckkb/` that came with the clone.

    Where the configuration has changed since the last command, as after a pull, it is read first, and noted for
    later files.
    """
    from duckkb.storage import merge_rules
    from duckkb.storage.repository import tracks_state

    if tracks_state(root):
        return merge_rules.RulesByTable()
    if merge_rules.is_current(root):
        return merge_rules.load(root)
    from duckkb.operations.git_branches import rules_at
    from duckkb.types.errors import DuckkbError

    try:
        rules = rules_at(root)
    except DuckkbError:
        return merge_rules.load(root)
    merge_rules.remember(root, rules)
    return rules


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stderr.flush()
    os._exit(code)
