"""The site that `make site` builds: the pages of this repository as they are, with a tree of them made from the indices."""

import re
from collections.abc import Iterator
from posixpath import dirname, join, normpath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "duckkb"
extensions = ["myst_parser"]
root_doc = "docs/index"
include_patterns = ["*.md", "docs/**.md", "clients/typescript/README.md"]
exclude_patterns = [".*", "build", "tests", "bench", "data", "duckkb", "**/node_modules"]
html_theme = "furo"
html_title = "duckkb"
html_copy_source = False
html_show_copyright = False
html_use_index = False
myst_heading_anchors = 4
suppress_warnings = ["misc.highlighting_failure"]  # samples of JSON with an ellipsis are not JSON

INDICES = ("docs/index", "docs/adr/README")
_GROUP = re.compile(r"^#+ (.+)\n((?:(?!^#).*\n)*)", re.MULTILINE)
_PAGE = re.compile(r"\]\(([\w./-]+)\.md(?:#[\w-]+)?\)")


def toctrees(index: str, text: str) -> Iterator[str]:
    """Yield a hidden tree for each heading of an index: the pages that are linked below it, each where it is linked first."""
    seen = {index}
    for caption, body in _GROUP.findall(text):
        links = dict.fromkeys(normpath(join(dirname(index), link)) for link in _PAGE.findall(body))
        pages = [page for page in links if page not in seen]
        seen.update(pages)
        if pages:
            lines = "".join(f"/{page}\n" for page in pages)
            yield f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{lines}```\n"


def add_toctrees(app: "Sphinx", page: str, source: list[str]) -> None:
    """Append to an index, as it is read, the trees of its pages."""
    if page in INDICES:
        source[0] += "".join(toctrees(page, source[0]))


def setup(app: "Sphinx") -> None:
    """Have Sphinx ask for the trees."""
    app.connect("source-read", add_toctrees)
