"""What an edit costs: the chunks that one paragraph, inserted in one section of each of 40 files, has embedded anew.

usage: python bench/chunks.py [--size N] [--files N] [--seed N] [--out FILE]

The texts are the Markdown trees of DUCKKB_EVAL_DATA/docs. A chunk is embedded anew where no chunk of the text before had
the same text, as vectors are kept by text. Beside it: the chunks of the edited text that touch the edited section (from
its heading to the next), how many chunks there are, and how long they are.
"""

import argparse
import json
import os
import random
import re
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from duckkb.index.text_chunks import chunk

HEADING = re.compile(r"^#{1,6} ", re.MULTILINE)
BLANK = re.compile(r"\n\n+")
PARAGRAPHS = {
    "fastapi_en": "This paragraph was written later, when somebody asked how the setting behaves. It says what happens "
    "when a value is missing, and why the default is what it is.\n\n",
    "fastapi_zh": "这一段是后来加上的，因为有人问这个设置在实际使用中是怎样工作的。它说明缺少某个值时会发生什么，以及为什么默认值是这样。"
    "请先阅读前面的内容，再决定是否需要修改。\n\n",
}


def sections(text: str) -> list[tuple[int, int]]:
    starts = [0, *(match.start() for match in HEADING.finditer(text) if match.start()), len(text)]
    return list(pairwise(starts))


def edit(text: str, paragraph: str, size: int, draw: random.Random) -> tuple[int, int]:
    """Chunks that are new after the insertion, and chunks of the section that got it."""
    first, last = draw.choice(sections(text))
    at = draw.choice([match.end() for match in BLANK.finditer(text, first, last)] or [last])
    edited = text[:at] + paragraph + text[at:]
    before, after = {piece.text for piece in chunk(text, size)}, chunk(edited, size)
    own = [one for one in after if one.start < last + len(paragraph) and one.start + len(one.text) > first]
    return sum(one.text not in before for one in after), len(own)


def measure(texts: Sequence[str], paragraph: str, size: int, files: int, seed: int) -> dict[str, object]:
    draw = random.Random(seed)
    edited = draw.sample([text for text in texts if len(text) > size], files)
    found = [edit(text, paragraph, size, draw) for text in edited]
    changed, own = (sum(column) for column in zip(*found, strict=True))
    sizes = sorted(len(one.text) for text in texts for one in chunk(text, size))
    tenths = {f"p{share}": sizes[len(sizes) * share // 100] for share in (5, 10, 50, 90)}
    return {
        "edits": len(found),
        "changed": changed,
        "of sections": own,
        "ratio": round(changed / own, 2),
        "worst": max(one for one, _ in found),
        "chunks of these files": sum(len(chunk(text, size)) for text in edited),
        "all chunks": len(sizes),
        "mean length": round(sum(sizes) / len(sizes)),
        **tenths,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=800)
    parser.add_argument("--files", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    data = os.environ.get("DUCKKB_EVAL_DATA")
    if not data:
        print("skipped: DUCKKB_EVAL_DATA is unset; it names the folder with docs/", file=sys.stderr)
        return 0
    table = {}
    for name, paragraph in PARAGRAPHS.items():
        texts = [path.read_text("utf-8") for path in sorted((Path(data) / "docs" / name).rglob("*.md"))]
        table[name] = measure(texts, paragraph, chosen.size, chosen.files, chosen.seed)
        print(f"{name}: " + ", ".join(f"{what} {value}" for what, value in table[name].items()))
    if chosen.out:
        chosen.out.write_text(json.dumps(table, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
