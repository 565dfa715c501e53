"""Whether a merge commit holds what a merge by records gives, or a pick or revert that says what it is from: forges and git
without the driver merge parts by lines, and some of that is clean to them and a conflict of records all the same (deleted
here, renamed there)."""

from collections.abc import Iterator
from pathlib import Path

from duckkb.codes import CODES
from duckkb.errors import Finding
from duckkb.review.merging import sides as versions
from duckkb.review.merging.sides import Sides
from duckkb.review.merging.trees import Contents, Merged, Tree, merge_trees
from duckkb.truth import git_changes, history
from duckkb.truth.conflict import Block, is_marker, read
from duckkb.truth.merge import split
from duckkb.truth.merge_file import identity_of, table_of
from duckkb.truth.merge_rules import Rules, TableRules

_CODE = "W_MERGED"


def findings(root: Path, rules: Rules, commit: str = "HEAD") -> list[Finding]:
    """The records that a merge commit of two parents holds otherwise than a merge by records would, in parts that lines
    alone could decide: what a person had to settle is theirs to settle. The same of a pick or a revert that says what it
    is from, in parts that are as git made them. Empty for any other commit, and where its sources are not here (a shallow
    clone)."""
    known = history.head_commit(root) if commit == "HEAD" else commit
    if not known or not history.can_be_asked(root):
        return []
    commit = known
    heads = git_changes.parents(root, commit)
    sides = _of_merge(root, heads, rules) if len(heads) == 2 else _of_carried(root, commit, heads)
    if sides is None:
        return []
    held = versions.tree(root, commit)
    merged = merge_trees(sides.base, sides.ours, sides.theirs, sides.contents, rules)
    found: list[Finding] = []
    for path in _differing(merged, held, sides, rules):
        key = table_of(path)
        there = sides.contents.of(held.get(path))
        if key is not None and (len(heads) == 2 or sides.is_gits(path, there, rules.of(key))):
            found += _in_part(path, merged.parts[path] or b"", there or b"", rules.of(key))
    return found


def _of_merge(root: Path, heads: list[str], rules: Rules) -> Sides | None:
    if not all(git_changes.parents(root, head) or git_changes.is_root(root, head) for head in heads):
        return None
    return versions.of_commits(root, heads[0], heads[1], rules)


def _of_carried(root: Path, commit: str, heads: list[str]) -> Sides | None:
    """Who picks or reverts often amends that, and nothing says so: what git did not make is not looked at."""
    change = git_changes.carried(root, commit) if len(heads) == 1 else None
    if change is None:
        return None
    base, ours, theirs = (versions.tree(root, one) for one in (change[0], heads[0], change[1]))
    return Sides(base, ours, theirs, Contents(root))


def _differing(merged: Merged, held: Tree, sides: Sides, rules: Rules) -> Iterator[str]:
    """The parts that hold something else than a merge by records, though no line of them was in conflict."""
    for path, wanted in merged.parts.items():
        there, key = sides.contents.of(held.get(path)), table_of(path)
        if path in merged.by_lines or key is None or there == wanted:
            continue
        base, ours, theirs = (sides.contents.of(tree.get(path)) for tree in (sides.base, sides.ours, sides.theirs))
        if ours is None or theirs is None:
            if base is None or base in (ours, theirs) or ours == theirs:
                yield path
            continue  # else git asked
        is_clean = git_changes.merge_lines(base or b"", ours, theirs, sides.contents.root)[1]
        if is_clean or sides.is_merged(path, there, rules.of(key)):
            yield path


def _in_part(path: str, wanted: bytes, held: bytes, table: TableRules) -> Iterator[Finding]:
    there = {number: (line_no, line) for line_no, line in enumerate(held.split(b"\n"), 1) if (number := _id(line))}
    expected: set[str] = set()
    for item in read(wanted) or []:
        block = item if isinstance(item, Block) else Block(None, item, item)
        number = _id(block.ours or block.theirs or b"")
        expected.add(number)
        line_no, line = there.get(number, (0, None))
        if line is not None and line == item:
            continue
        if isinstance(item, Block):
            fields = " ".join(filter(None, block.open_fields(table.rules)))
            said = f"both sides changed it {f'({fields})' if fields else '(one deleted it)'}, and git took one of them unasked"
        else:
            said = (
                "a merge by records keeps changes that are not in it"
                if line
                else "a merge by records keeps it, and it is gone"
            )
        yield _finding(path, line_no, said, table, block)
    for number, (line_no, line) in there.items():
        if number not in expected:
            yield _finding(path, line_no, "a merge by records does not keep it here", table, Block(None, line, line))


def _finding(path: str, line_no: int, said: str, table: TableRules, block: Block) -> Finding:
    identity = identity_of(block, table)
    return Finding(_CODE, said, path, line_no, remedy=CODES[_CODE].remedy, type=table.name, identity=identity)


def _id(line: bytes) -> str:
    if not line.startswith(b"{") or is_marker(line):
        return ""
    try:
        return split(line).get("__id", ("", ""))[1]
    except ValueError:
        return ""
