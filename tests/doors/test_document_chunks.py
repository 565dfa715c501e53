"""Chunks of documents as they are embedded, found, shown and cited."""

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from duckkb.documents import document_chunks
from tests.conftest import Ran, commit, make_base, run_in
from tests.fake_endpoint import FakeEndpoint

CONFIG = """\
global:
  embedding_model: some-model
  embedding: {{base_url: "{url}", dimensions: 16, max_retries: 0}}
"""
COLLECTION = """\
collections:
  guide:
    source:
      path: guide
      pattern: ["**/*.md", "**/*.py"]
      contexts: {"": Everything about lanterns, "repairs": For people with tools}
    policy:
      identity: {fields: path}
      fields: {vectors: [text], lexical: [{field: title, weight: 2.0}, headings, text], relational: auto}
      intents: {default: hybrid}
"""
WORDS = [
    "wick",
    "oil",
    "glass",
    "brass",
    "handle",
    "flame",
    "light",
    "shade",
    "night",
    "lamp",
    "hook",
    "chain",
    "burner",
    "tank",
    "cap",
    "ring",
    "base",
]


def section(number: int, draw: random.Random, tokens: int = 300) -> str:
    paragraphs = (" ".join(draw.choices(WORDS, k=30)) + "." for _ in range(tokens // 30))
    return f"## Step {number}\n\n" + "\n\n".join(paragraphs) + "\n\n"


class Ground:
    """A base of documents whose vectors come from an endpoint."""

    def __init__(self, folder: Path, endpoint: FakeEndpoint) -> None:
        self.root = make_base(folder / "kb", CONFIG.format(url=endpoint.url))
        self.endpoint, self._env = endpoint, {"XDG_STATE_HOME": str(folder / "state")}
        (self.root / "ontology" / "collections").mkdir(parents=True)
        (self.root / "ontology" / "collections" / "guide.yaml").write_text(COLLECTION, "utf-8")
        assert self.run("trust").code == 0

    def run(self, *args: str) -> Ran:
        return run_in(self.root, args, env=self._env)

    def write(self, path: str, text: str) -> None:
        file = self.root / "guide" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")

    def refresh(self) -> tuple[int, int, list[str]]:
        """Texts changed, texts in all, and the texts that the model was asked for."""
        before = len(self.endpoint.texts)
        ran = self.run("index", "refresh")
        assert ran.code == 0, ran.err
        assert f"{ran.line['changed']} changed / {ran.line['total']} total texts" in ran.err.splitlines()
        return ran.line["changed"], ran.line["total"], self.endpoint.texts[before:]


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    with FakeEndpoint() as endpoint:
        yield Ground(tmp_path, endpoint)


def test_kx_07_an_edit_of_one_section_embeds_its_chunks_and_no_others(ground: Ground) -> None:
    draw = random.Random(4)
    sections = ["# Lantern\n\n", *(section(number, draw) for number in range(20))]
    ground.write("repairs/long.md", "".join(sections))
    ground.write("other.md", "# Other\n\nThis stays as it is.\n")
    changed, total, asked = ground.refresh()
    assert changed == len(asked) == total > 10, "titles and headings have no vectors"
    first, *others = sorted((text for text in asked if "tools" in text), key=lambda text: "# Lantern" not in text)
    assert first.startswith("Everything about lanterns For people with tools\n\n# Lantern\n")
    assert all(text.startswith("Everything about lanterns For people with tools\nStep ") for text in others)
    sections[2] = sections[2].replace("\n\n", "\n\nA paragraph about porcelain, written later.\n\n", 1)
    ground.write("repairs/long.md", "".join(sections))
    again, after, asked = ground.refresh()
    assert (0 < again <= 3, after - total in (0, 1), len(asked)) == (True, True, again)
    assert all("Step 1" in text or "Step 2" in text or "Step 0" in text for text in asked)
    assert any("porcelain" in text for text in asked)
    assert ground.refresh() == (0, after, [])
    file = ground.root / "ontology" / "collections" / "guide.yaml"
    file.write_text(COLLECTION.replace("For people with tools", "For people with time"), "utf-8")
    assert ground.run("trust").code == 0
    renamed, _, asked = ground.refresh()
    assert renamed == len(asked) == after - 1 and all("For people with time" in text for text in asked), (
        "other.md lies elsewhere"
    )


def test_update_and_the_index_count_the_same_texts(ground: Ground) -> None:
    ground.write("one.md", "# Lantern\n\nOne text.\n")
    ground.write("other.md", "# Other\n\nThis stays as it is.\n")
    _, total, _ = ground.refresh()
    assert f" / {total} texts" in ground.run("update").err
    ground.write("one.md", "# Lantern\n\nAnother text.\n")
    assert f"1 embedded, 0 pending / {total} texts" in ground.run("update").err.splitlines()
    assert ground.refresh() == (0, total, [])


def test_kx_06_a_chunk_is_shown_and_cited_without_what_stands_before_it_for_the_model(ground: Ground) -> None:
    draw = random.Random(5)
    steps = [section(number, draw) for number in range(12)]
    steps[7] = steps[7].replace("\n\n", "\n\nHere the porcelain cup is glued. ", 1)
    text = "---\nauthor: Ann\n---\n# Lantern\n\n" + "".join(steps)
    ground.write("repairs/long.md", text)
    ground.refresh()
    commit(ground.root)
    found = ground.run("find", "guide", "porcelain cup", "--match", "--provenance", "--full").line
    uri = found["_provenance"]["uri"]
    assert uri.endswith(f"#text/{found['_chunk']['chunk_seq']}")
    chunk = ground.run("get", uri).line["_chunk"]
    assert "porcelain" in chunk["text"] and chunk["text"] in text and "lanterns" not in chunk["text"]
    start = found["text"].index(chunk["text"])
    assert chunk["text"].splitlines()[0] in text.splitlines()[document_chunks.line_at(found, start) - 1]
    step = document_chunks.heading_path(found["text"], found["text"].index("porcelain"))
    assert step == ["Lantern", "Step 7"]
    by_context = ground.run("find", "guide", "tools", "--match").line
    assert by_context["path"] == "repairs/long.md", "words find a document by what its folder is about"


def test_kx_06_words_that_two_chunks_have_in_common_count_once(ground: Ground) -> None:
    draw = random.Random(6)
    ground.write("long.md", "# Lantern\n\n" + "".join(section(number, draw) for number in range(6)))
    ground.refresh()
    rows = ground.run(
        "sql", "SELECT content, fts_content FROM search_index WHERE source_field = 'text' ORDER BY chunk_seq"
    )
    lines = [json.loads(line) for line in rows.out.splitlines()]
    text = (ground.root / "guide" / "long.md").read_text("utf-8")
    said = [word for one in lines for word in one["fts_content"].split() if word in WORDS]
    assert said == [word for word in text.replace(".", " ").split() if word in WORDS]
    assert sum(len(one["content"]) for one in lines) > len(text), "what is shown and embedded overlaps"


def test_kx_06_code_is_cut_where_the_grammar_has_classes_and_functions(ground: Ground) -> None:
    pytest.importorskip("tree_sitter_python")
    body = "".join(f"    step_{number} = measure(flame, {number})\n\n" for number in range(12))
    ground.write("lamp.py", "".join(f"@lit\ndef burn_{number}(flame):\n{body}\n" for number in range(40)))
    ground.refresh()
    asked = [text.partition("\n\n")[2] for text in ground.endpoint.texts if "flame" in text]
    assert len(asked) > 4
    ends = [text.rstrip().rsplit("\n", 1)[-1] for text in asked]
    assert ends == ["    step_11 = measure(flame, 11)"] * len(asked), "behind a function, not at a blank line in it"


def test_page_and_line_of_a_place() -> None:
    assert [document_chunks.page([0, 10, 20], at) for at in (0, 9, 10, 25)] == [1, 1, 2, 3]
    assert document_chunks.page([], 5) is None
    assert document_chunks.line_at({"text": "a\nb\nc", "text_line": 4}, 4) == 6
