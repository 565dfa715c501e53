"""Files as documents: what was put into a file is in its text, or a warning says that it may not be; whatever a file is,
nothing else happens."""

import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from duckkb.documents import document, extraction, extraction_result, pdf
from duckkb.documents.document import WARNINGS, Extracted
from duckkb.documents.extraction_result import FileText
from duckkb.ontology.model import Extraction
from tests.harness.files import docx
from tests.harness.files.pdf import Pdf, lines
from tests.harness.files.samples import EN, Sample, samples
from tests.harness.fuzz.loop import Hang, limited


@pytest.fixture(scope="module")
def written() -> tuple[Sample, ...]:
    return samples()


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Path]:
    """A folder in which this process remembers."""
    folder = tmp_path / "documents"
    extraction.remember_in(folder)
    yield folder
    extraction.remember_in(None)


def well_formed(found: Extracted, raw: bytes) -> None:
    """What must hold of every answer, whatever the file."""
    fields = found.fields
    assert fields["size"] == len(raw) and fields["format"] and isinstance(fields["title"], str)
    assert set(fields.get("warnings", ())) <= set(WARNINGS)
    json.dumps([fields, found.links], ensure_ascii=False).encode()
    if fields["format"] in ("pdf", "docx", "html"):
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f]", fields["text"] + fields["title"])
    starts = fields.get("pages", [])
    assert starts == sorted(starts) and all(0 <= start <= len(fields["text"]) for start in starts)
    assert not starts or starts[0] == 0


def problems(sample: Sample) -> list[str]:
    """What of a sample is not as it should be."""
    found = document.read_document(sample.name, sample.raw)
    well_formed(found, sample.raw)
    text, warned = found.fields["text"], set(found.fields.get("warnings", ()))
    wrong, at = list[str](), 0
    for said in sample.says:
        if (at := text.find(said, at)) < 0:
            if not (sample.warns is None and warned):
                wrong.append(f"{said!r} is not in its place in {text[:300]!r}")
            break
    if sample.warns is None and not text and not warned:
        wrong.append("neither a text nor a warning")
    if sample.warns is not None and warned != sample.warns:
        wrong.append(f"warns {sorted(warned)} and not {sorted(sample.warns)}: {text[:200]!r}")
    wrong += [f"{one!r} is in its text" for one in sample.never if one in text]
    if sample.title and found.fields["title"] != sample.title:
        wrong.append(f"has the title {found.fields['title']!r}")
    if tuple(found.fields.get("headings", ())) != sample.headings:
        wrong.append(f"has the headings {found.fields.get('headings')}")
    if sample.pages and len(found.fields.get("pages", ())) != sample.pages:
        wrong.append(f"has the pages {found.fields.get('pages')}")
    if sample.links and set(found.links) != set(sample.links):
        wrong.append(f"links to {sorted(found.links)}")
    return [f"{sample.name}: {one}" for one in wrong]


@pytest.mark.long
def test_kx_18_what_was_put_into_a_file_is_in_its_text_or_a_warning_says_why_not(written: tuple[Sample, ...]) -> None:
    assert len(written) >= 60 and len({one.name for one in written}) == len(written)
    found = [line for sample in written for line in problems(sample)]
    assert not found, "\n".join(found)


def test_control_a_text_that_lacks_something_is_found_out() -> None:
    good = Sample("a.html", f"<p>{EN}</p>".encode(), (EN,))
    assert problems(good) == []
    for worse in (Sample("a.html", good.raw, (EN, "more")), Sample("a.html", good.raw, warns=frozenset({"failed"}))):
        assert len(problems(worse)) == 1


def _odd_documents() -> dict[str, bytes]:
    """Documents of Word whose parts name what is not there."""
    said, run = docx.plain(EN) + docx.plain("文本文件"), docx.run
    blip = '<a:graphic><a:graphicData><pic:pic><pic:blipFill><a:blip r:embed="rGone"/></pic:blipFill></pic:pic></a:graphicData></a:graphic>'
    picture = f"<w:r><w:drawing><wp:inline>{blip}</wp:inline></w:drawing></w:r>"
    linked = '<a:blip r:link="rAway"/>'
    styles = docx.root("styles", '<w:style w:type="paragraph" w:styleId="Heading1"/><w:style w:type="character"/>')
    whole = docx.document(said, {"footnotes.xml": docx.notes("footnotes", ["A note"])})
    bodies = {
        "a link": said + docx.paragraph(f'<w:hyperlink r:id="rGone">{run("linked")}</w:hyperlink>'),
        "a picture": said + docx.paragraph(picture),
        "a linked picture": said + docx.paragraph(picture.replace('<a:blip r:embed="rGone"/>', linked)),
        "a footnote": said + docx.paragraph('<w:r><w:footnoteReference w:id="7"/></w:r>'),
        "an endnote": said + docx.paragraph('<w:r><w:endnoteReference w:id="7"/></w:r>'),
        "a comment": said + docx.paragraph('<w:r><w:commentReference w:id="7"/></w:r>'),
        "a style": said + docx.paragraph(run("styled"), style="NoSuchStyle"),
    }
    at = whole.index(b"word/footnotes.xml") + len("word/footnotes.xml") + 8
    return {
        **{name: docx.document(body) for name, body in bodies.items()},
        "a style without a name": docx.document(
            docx.paragraph(run("x"), style="Heading1") + said, {"styles.xml": styles}
        ),
        "a damaged part": whole[:at] + bytes(8) + whole[at + 8 :],
    }


def test_a_document_of_word_with_something_missing_keeps_its_text() -> None:
    degraded = 0
    for name, raw in _odd_documents().items():
        fields = document.read_document("a.docx", raw).fields
        assert EN in fields["text"] and "文本文件" in fields["text"], (name, fields)
        assert set(fields.get("warnings", ())) <= {"degraded"}, name
        degraded += "warnings" in fields
    assert degraded >= 4, "the library stumbles over several of them, which is said"


def test_words_of_pages_and_cells_stay_apart_and_whole() -> None:
    form = "<p>one<img alt='map' src='data:x'>two<select><option>red</option><option>blue</option></select>"
    page = f"{form}<textarea>long</textarea><button>Go</button><label>Name</label></p><table><tr><th>a|b<tr><td>c|d</table>"
    text = document.read_document("a.html", page.encode()).fields["text"]
    assert text.split("\n")[0].split() == ["one", "map", "two", "red", "blue", "long", "Go", "Name"]
    assert "| a\\|b |" in text and "| c\\|d |" in text
    cells = docx.table([[docx.plain("x|y"), docx.plain("z")]])
    assert "| x\\|y | z |" in document.read_document("a.docx", docx.document(cells)).fields["text"]
    words = pdf._join_words(
        "ware\x02\r\nhouse well\ufffe\nknown GPT\x02\n4 Anglo\x02\nSaxon state-of\x02\nthe-art a well-known one 知\x02\n识 \x02"
    )
    assert words == "warehouse well-known GPT-4 Anglo-Saxon state-of-the-art a well-known one 知识 "
    assert document.read_document("a.md", b"# Old\r\rline 3 [x](b.md)\r").links == {"b.md": [3]}


def test_kx_18_a_place_in_the_text_of_a_pdf_says_its_page() -> None:
    pages = [lines(f"first of page {n}", f"second of page {n}") for n in range(1, 8)]
    pages[3] = []
    found = document.read_document("a.pdf", Pdf(pages).write()).fields
    starts = found["pages"]
    assert len(starts) == 7
    for number in (1, 2, 3, 5, 6, 7):
        ends = [*starts, len(found["text"])][number]
        assert f"second of page {number}" in found["text"][starts[number - 1] : ends]
    assert starts[3] == starts[4], "a page without text begins where the next one does"


_LONG = 1 << 18
HOSTILE = {
    "blanks in a heading": "# x" + " " * _LONG + "y", "marks in a heading": "# " * _LONG, "braces": "# " + "{." * _LONG,
    "a target without an end": "[a](" + "b" * _LONG, "blanks for a target": "[a](" + " " * _LONG,
    "opened": "[" * _LONG, "pairs": "[[]" + "[]" * _LONG, "wiki": "[[a" * _LONG, "brackets": "[a](b" + "(" * _LONG,
    "runs": " ".join("`" * number for number in range(1, 700)), "ticks": "` " * _LONG, "links": "[a](b.md)\n" * 60_000,
    "comments": "<!-- " * _LONG, "percents": "%%a" * _LONG,
    "fences": "```\n" * (_LONG // 4), "under": "a\n" + "=" * _LONG + "x", "front": "---\n" + "[" * 60_000 + "\n---\n",
}  # fmt: skip


@pytest.mark.long
def test_kx_18_no_text_takes_more_time_than_its_length_asks_for() -> None:
    """They are read in this process, which nobody stops."""
    for name, text in HOSTILE.items():
        try:
            with limited(3):
                well_formed(document.read_document("a.md", text.encode()), text.encode())
        except Hang:
            pytest.fail(f"{name} takes more than 3 s")


def test_code_between_backticks_holds_no_links_and_ends_with_its_paragraph() -> None:
    text = "`[no](a.md)` [yes](b.md) ``[no](c.md) ` `` [yes](d.md)\n\nodd ` tick [yes](e.md)\n\nand ` [yes](f.md)\n"
    assert set(document.read_document("x.md", text.encode()).links) == {"b.md", "d.md", "e.md", "f.md"}


def test_kx_18_links_of_pages_and_documents_lead_to_files_beside_them() -> None:
    page = b"<p><a href='../x/b.pdf'>one</a><br>\n<a href='c%20d.md#e'>two</a> <a href='mailto:a@b'>no</a></p>"
    found = document.read_document("guide/a.html", page)
    assert {
        target: [found.fields["text"].splitlines()[line - 1] for line in at] for target, at in found.links.items()
    } == {
        "x/b.pdf": ["[one](../x/b.pdf)"],
        "guide/c d.md": ["[two](c%20d.md#e) [no](mailto:a@b)"],
    }


def test_kx_18_a_format_that_is_switched_off_or_not_installed_is_said_and_nothing_of_it_is_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = {
        "a.pdf": Pdf([lines(EN)]).write(),
        "a.docx": docx.document(docx.plain(EN)),
        "a.html": f"<p>{EN}</p>".encode(),
    }
    off = Extraction(off=("docx", "html", "pdf"))
    for name, raw in files.items():
        said = document.read_document(name, raw, off).fields
        assert (said["text"], said["warnings"], said["title"]) == ("", ["disabled"], "a")
    monkeypatch.setattr(extraction_result, "_find_version", lambda module: "")
    for name, raw in files.items():
        assert document.read_document(name, raw).fields["warnings"] == ["disabled"]
    assert document.read_document("a.pdf", files["a.pdf"], Extraction(largest=99)).fields["warnings"] == ["too_large"]


def test_kx_18_files_are_read_again_where_what_reads_them_is_installed_and_others_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import pypdfium2

    def names() -> list[str]:
        return [document.extractor(pattern) for pattern in (["**/*.md"], ["docs/*.pdf"], ["**/*"])]

    before = names()
    version = f"pypdfium2 {pypdfium2.PYPDFIUM_INFO.version}"
    assert [version in one for one in before] == [False, True, True] and "mammoth" in before[2]
    version_of = extraction_result._find_version
    monkeypatch.setattr(
        extraction_result, "_find_version", lambda module: "" if module == "pypdfium2" else version_of(module)
    )
    extraction_result.extractor.cache_clear()
    after = names()
    extraction_result.extractor.cache_clear()
    assert [one == other for one, other in zip(before, after, strict=True)] == [True, False, False]


def test_kx_18_what_was_extracted_is_remembered_by_content_and_made_anew_where_it_is_damaged(kept: Path) -> None:
    raw = Pdf([lines(EN)], title="T", outline=["H"]).write()
    first = document.read_document("a.pdf", raw)
    [file] = kept.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600 and kept.stat().st_mode & 0o777 == 0o700
    whole = file.read_bytes()
    extraction.close()
    assert document.read_document("other/b.pdf", raw).fields == first.fields
    assert extraction._extractor._process is None, "nothing was started: it was remembered"
    for damaged in (b"", whole[:-9], whole.replace(b"Orders", b"Ordeal"), whole[32:], b"\xff" * 99):
        file.write_bytes(damaged)
        assert document.read_document("a.pdf", raw) == first
        assert file.read_bytes() == whole
    assert [*kept.iterdir()] == [file]


def test_kx_18_another_version_extracts_anew(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = f"<p>{EN}</p>".encode()
    document.read_document("a.html", raw)
    monkeypatch.setattr(extraction, "extractor", lambda form: "another")
    monkeypatch.setattr(extraction._extractor, "read", lambda form, raw, how: (FileText("made anew"), True))
    assert [document.read_document("a.html", raw).fields["text"] for _ in "ab"] == ["made anew"] * 2
    monkeypatch.undo()
    assert document.read_document("a.html", raw).fields["text"] == EN


def test_kx_18_what_was_not_used_for_longest_goes_first(kept: Path) -> None:
    for number in range(4):
        document.read_document("a.html", f"<p>page {number}</p>".encode())
    files = sorted(kept.iterdir())
    for number, file in enumerate(files):
        os.utime(file, (number, number))
    most = sum(file.stat().st_size for file in files[2:])
    assert [path for path, _ in extraction.surplus(kept, most)] == files[:2]


def test_kx_18_a_folder_that_is_a_link_or_cannot_be_written_keeps_nothing_and_harms_nothing(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "file").write_text("x", "utf-8")
    try:
        for folder in (tmp_path / "link", tmp_path / "file", tmp_path / "file" / "below"):
            extraction.remember_in(folder)
            assert document.read_document("a.html", f"<p>{EN}</p>".encode()).fields["text"] == EN
    finally:
        extraction.remember_in(None)
    assert [*(tmp_path / "real").iterdir()] == []


_ODD = """
import os, sys, time
from duckkb.documents import extraction_worker as child
def odd(raw):
    if raw == b"sleep": time.sleep(99)
    if raw == b"spin":
        while True: pass
    if raw == b"die": os._exit(1)
    if raw == b"crash": import ctypes; ctypes.string_at(0)
    if raw == b"fill": return len(bytes(200_000_000) * 20)
    if raw == b"print": print("noise"); os.write(1, b"noise" * 99)
    if raw == b"lie": child.send(os.fdopen(answers, "wb"), b'{"text": 1}'); time.sleep(99)
    if raw == b"stumble": raise KeyError("r")
    from duckkb.documents.extraction_result import FileText
    return FileText("read")
answers = os.dup(1)
child._load_reader = lambda form: odd
child.main()
"""


@pytest.fixture
def odd(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Extraction by a process whose reader does what the file says."""
    extraction.close()
    monkeypatch.setattr(extraction, "_PROGRAM", _ODD)
    yield
    extraction.close()


@pytest.mark.long
@pytest.mark.parametrize(
    ("does", "warned"),
    [("sleep", "timeout"), ("spin", "timeout"), ("die", "failed"), ("crash", "failed"), ("fill", "failed"), ("lie", "failed"),
     ("stumble", "failed"), ("print", None)],
)  # fmt: skip
def test_kx_18_a_file_that_kills_its_reader_is_a_warning_and_the_next_one_is_read(
    odd: None, kept: Path, does: str, warned: str | None
) -> None:
    how = Extraction(seconds=1 if warned == "timeout" else 60, memory=256 * 1024**2)
    assert document.read_document("good.pdf", b"good", how).fields["text"] == "read"
    found = document.read_document("bad.pdf", does.encode(), how).fields
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(extraction._extractor, "read", None)  # nobody waits twice for the same file
        assert document.read_document("again.pdf", does.encode(), how).fields["text"] == found["text"]
    assert found.get("warnings") == ([warned] if warned else None)
    assert document.read_document("other.pdf", b"other", how).fields["text"] == "read"
    is_remembered = does in ("stumble", "print")
    assert len([*kept.iterdir()]) == 2 + is_remembered, (
        "a machine that was busy, or short of memory, says nothing of a file"
    )


def test_kx_18_files_of_several_threads_and_of_forks_are_read_by_processes_of_their_own() -> None:
    pages = [f"<p>page {number}</p>".encode() for number in range(12)]
    found: dict[int, str] = {}

    def read(number: int) -> None:
        found[number] = document.read_document("a.html", pages[number]).fields["text"]

    threads = [threading.Thread(target=read, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: f"page {number}" for number in range(12)}
    before = extraction._extractor._process
    child_id = os.fork()
    if child_id == 0:
        try:
            ok = document.read_document("a.html", b"<p>of the fork</p>").fields["text"] == "of the fork"
            extraction.close()
        finally:
            os._exit(not ok)
    assert os.waitstatus_to_exitcode(os.waitpid(child_id, 0)[1]) == 0
    assert document.read_document("a.html", b"<p>after it</p>").fields["text"] == "after it"
    assert extraction._extractor._process is before is not None


def test_kx_18_the_process_opens_no_connection_starts_no_program_and_reads_no_file_of_others(tmp_path: Path) -> None:
    code = """
import json, os, socket, subprocess, sys
from duckkb.documents import extraction_worker as child
child.close()
tries = [
    lambda: socket.socket(), lambda: socket.create_connection(("127.0.0.1", 9)), lambda: subprocess.run(["true"]),
    lambda: os.system("true"), lambda: open(sys.argv[1]), lambda: open(sys.argv[1], "w"), lambda: open("/etc/passwd"),
    lambda: os.remove(sys.argv[1]), lambda: os.fork(), lambda: open(os.path.join(os.path.dirname(os.__file__), "x"), "w"),
]
refused = 0
for one in tries:
    try: one()
    except PermissionError: refused += 1
open(os.__file__).close()
print(refused, len(tries))
"""
    target = tmp_path / "mine.txt"
    target.write_text("mine", "utf-8")
    done = subprocess.run([sys.executable, "-c", code, str(target)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["10", "10"]
    assert target.read_text("utf-8") == "mine"


def test_packages_that_an_installer_linked_are_read_and_nothing_beside_them(tmp_path: Path) -> None:
    code = """
import os, sys
from duckkb.documents import extraction_worker as child
packages, store = sys.argv[1:]
sys.path.append(packages)
child.close()
import file_by_file, folder_as_link, module_as_link
assert [one.WORD for one in (file_by_file, folder_as_link, module_as_link)] == ["read"] * 3
for path in ("folder/data.txt", "module.py"): open(os.path.join(store, path)).close()
refused = 0
for path in (
    f"{store}/mine.txt", f"{store}/files/beside.txt", f"{packages}/folder_as_link/../mine.txt",
    f"{packages}/../store/mine.txt", f"{packages}-not/mine.txt",
):
    try: open(path)
    except PermissionError: refused += 1
try: open(f"{packages}/new.txt", "w")
except PermissionError: refused += 1
print(refused)
"""
    packages, store = tmp_path / "lib/site-packages", tmp_path / "store"
    for path in ("files/init.py", "folder/__init__.py", "module.py"):
        (store / path).parent.mkdir(parents=True, exist_ok=True)
        (store / path).write_text("WORD = 'read'\n", "utf-8")
    for path in ("folder/data.txt", "files/beside.txt", "mine.txt"):
        (store / path).write_text("mine", "utf-8")
    (packages / "file_by_file").mkdir(parents=True)
    (packages / "file_by_file/__init__.py").symlink_to(store / "files/init.py")
    (packages / "folder_as_link").symlink_to(store / "folder")
    (packages / "module_as_link.py").symlink_to(store / "module.py")
    (packages.parent / "site-packages-not").symlink_to(store)
    asked = [sys.executable, "-B", "-c", code, str(packages), str(store)]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert (done.stdout.split(), done.stderr) == (["6"], "")


def test_kx_18_nothing_that_a_file_names_is_fetched() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        place = f"http://127.0.0.1:{server.getsockname()[1]}/x.png"
        links = {"rLink": place}
        picture = '<w:r><w:drawing><wp:inline><a:graphic><a:graphicData><pic:pic><pic:blipFill><a:blip r:link="rLink"/></pic:blipFill></pic:pic></a:graphicData></a:graphic></wp:inline></w:drawing></w:r>'
        document.read_document("a.docx", docx.document(docx.paragraph(docx.run(EN), picture), links=links))
        document.read_document(
            "a.html", f"<link rel=stylesheet href={place}><img src={place}><p>{EN}</p><iframe src={place}>".encode()
        )
        with pytest.raises(TimeoutError):
            server.accept()
