"""Files with what was put into them: the oracle of extraction is what was put in, or a warning that it may not be all there."""

import codecs
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from zipfile import ZIP_DEFLATED, ZipFile

from tests.harness.files import docx
from tests.harness.files.pdf import Pdf, assembled, lines

EN = "Orders are shipped on the second working day"
ZH = "知识库的记录保存在文本文件里"
_MB = 1 << 20


@dataclass(frozen=True)
class Sample:
    """A file, what its text says (`says`, in this order), what must not stand in it (`never`), and its warnings: exactly these;
    None for a file of which it is only asked that it be well-formed and say something or warn."""

    name: str
    raw: bytes
    says: tuple[str, ...] = ()
    warns: frozenset[str] | None = frozenset()
    never: tuple[str, ...] = ()
    title: str = ""
    headings: tuple[str, ...] = ()
    pages: int = 0
    links: tuple[str, ...] = ()


@lru_cache(1)
def samples() -> tuple[Sample, ...]:
    """All of them; the same every time."""
    return (*_pdf(), *_broken_pdf(), *_docx(), *_broken_docx(), *_html(), *_broken_html(), *_text())


def _warned(*codes: str) -> frozenset[str]:
    return frozenset(codes)


def _pdf() -> Iterator[Sample]:
    def pdf(
        name: str,
        document: Pdf,
        *says: str,
        warns: frozenset[str] = frozenset(),
        title: str = "",
        headings: tuple[str, ...] = (),
    ) -> Sample:
        return Sample(
            f"{name}.pdf", document.write(), says, warns, title=title, headings=headings, pages=len(document.pages)
        )

    second = "Returns are accepted within a month"
    yield pdf("plain", Pdf([lines(EN, second)]), EN, second, title="plain")
    yield pdf("two-pages", Pdf([lines(EN), lines(second)]), EN, second)
    yield pdf(
        "three-hundred-pages",
        Pdf([lines(f"Page {n} of the long report") for n in range(300)]),
        *(f"Page {n} of" for n in range(300)),
    )
    yield pdf("packed", Pdf([lines(EN)], packed=True), EN)
    yield pdf(
        "titled",
        Pdf([lines(EN), lines(second)], title="运输 Shipping", outline=["Sending", "退货"]),
        EN,
        second,
        title="运输 Shipping",
        headings=("Sending", "退货"),
    )
    columns = [*lines("left one", "left two", "left three"), *lines("right one", "right two", "right three", x=330)]
    yield pdf("columns", Pdf([columns]), "left one", "right three")
    table = [(60 + 120 * x, 700 - 18 * y, f"cell {x} {y}") for y in range(4) for x in range(3)]
    yield pdf("table", Pdf([table]), "cell 0 0", "cell 2 0", "cell 1 3")
    notes = [*lines(EN + " 1"), *lines("1 A note at the foot of the page", top=60)]
    yield pdf("footnote", Pdf([notes]), EN, "A note at the foot of the page")
    repeated = [
        [*lines("Quarterly report", top=820), *lines(f"Body of page {n}"), *lines(f"{n} of 3", top=30)]
        for n in (1, 2, 3)
    ]
    yield pdf("headers", Pdf(repeated), "Quarterly report", "Body of page 1", "3 of 3")
    yield pdf("chinese", Pdf([lines(ZH)]), ZH)
    yield pdf("japanese", Pdf([lines("注文は二営業日以内に発送されます")]), "注文は二営業日以内に発送されます")
    yield pdf("rare-characters", Pdf([lines("𠮷野家 and 𐌲𐌿𐍄 here")]), "𠮷野家 and 𐌲𐌿𐍄 here")
    for name, said in (("hebrew", "ההזמנות נשלחות"), ("arabic", "تشحن الطلبات سريعا")):
        yield pdf(name, Pdf([lines(said[::-1])]), said)  # drawn from the left, as it is seen
    yield pdf("rotated", Pdf([lines(EN)], rotated=90), EN)
    yield pdf("hyphen", Pdf([lines("The ware-", "house is closed on Sundays")]), "The warehouse is closed on Sundays")
    yield pdf("no-password", Pdf([lines(EN)], password=""), EN)
    yield pdf(
        "boxes",
        Pdf([lines(EN)], notes=["Checked by Ada"], fields=["Invoice 4711"]),
        EN,
        "Checked by Ada",
        "Invoice 4711",
    )
    yield pdf("password", Pdf([], password="swordfish"), warns=_warned("encrypted"))
    yield pdf("scan", Pdf([[], []], picture=True), warns=_warned("no_text"))
    yield pdf("numbered-scan", Pdf([lines("1"), lines("2")], picture=True), "1", "2", warns=_warned("no_text"))
    yield pdf("hidden", Pdf([lines(EN)], picture=True, hidden=True), EN, warns=_warned("degraded"))


def _broken_pdf() -> Iterator[Sample]:
    good = Pdf([lines(EN, f"line {n}") for n in range(20)]).write()
    yield Sample("behind-junk.pdf", b"junk before the mark\n" * 20 + good, (EN,), None)
    yield Sample("wrong-places.pdf", good.replace(b" 00000 n", b"9 00000 n"), (EN, "line 19"), pages=20)
    yield Sample("no-places.pdf", good[: good.rindex(b"xref\n0")], (EN, "line 19"), None)
    yield Sample("half.pdf", good[: len(good) // 2], (), None)
    yield Sample("nothing-but-a-mark.pdf", b"%PDF-1.4\n", (), _warned("failed"))
    yield Sample(
        "not-a-pdf.pdf", b"<html><p>Not a PDF at all, and longer than a few words.</p></html>", (), _warned("failed")
    )
    yield Sample("noise.pdf", b"%PDF-1.7\n" + random.Random(1).randbytes(20_000), (), _warned("failed"))
    yield Sample("no-mark.pdf", good.replace(b"%PDF-1.4", b"        "), (EN, "line 19"), _warned("degraded"), pages=20)
    loop = [b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Kids[2 0 R 2 0 R]/Count 2>>"]
    yield Sample("endless-tree.pdf", assembled(loop), (), None)
    many = [b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Kids[]/Count 2147483647>>"]
    yield Sample("a-billion-pages.pdf", assembled(many), (), None)
    yield Sample("deep.pdf", assembled([b"<</Type/Catalog/Pages " + b"[" * 100_000 + b">>"]), (), None)
    bomb = Pdf([lines(EN)], packed=True, content=b" " * (40 * _MB)).write()
    yield Sample("bomb.pdf", bomb, (), _warned("no_text"), pages=1)


def _docx() -> Iterator[Sample]:
    p, run = docx.plain, docx.run

    def made(name: str, body: str, *says: str, parts: dict[str, str | bytes] | None = None, **more: object) -> Sample:
        links = more.pop("related", None)
        return Sample(f"{name}.docx", docx.document(body, parts, links), says, **more)  # type: ignore[arg-type]

    yield made("plain", p(EN, ZH), EN, ZH, title="plain")
    heads = (
        docx.paragraph(run("Shipping"), style="Heading1")
        + p(EN)
        + docx.paragraph(run("Abroad"), style="Heading2")
        + p(ZH)
    )
    yield made("headings", heads, "# Shipping", EN, "## Abroad", ZH, title="Shipping", headings=("Shipping", "Abroad"))
    core = '<?xml version="1.0"?><c xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>Core title</dc:title></c>'
    yield made("titled", p(EN), EN, parts={"../docProps/core.xml": core}, title="Core title")
    cells = docx.table([[p("Item"), p("Price")], [p("Pen"), p("12")]])
    yield made("table", cells, "| Item | Price |", "| Pen | 12 |")
    yield made(
        "nested-table", docx.table([[p("outer") + docx.table([[p("inner")]]), p("beside")]]), "outer", "inner", "beside"
    )
    foot = p(EN) + docx.paragraph(run("Noted"), '<w:r><w:footnoteReference w:id="1"/></w:r>')
    yield made(
        "footnote",
        foot,
        EN,
        "Noted",
        "What the note says",
        parts={"footnotes.xml": docx.notes("footnotes", ["What the note says"])},
    )
    end = docx.paragraph(run("Ended"), '<w:r><w:endnoteReference w:id="1"/></w:r>')
    yield made(
        "endnote", end, "Ended", "At the very end", parts={"endnotes.xml": docx.notes("endnotes", ["At the very end"])}
    )
    remark = docx.paragraph(run("Remarked"), '<w:r><w:commentReference w:id="1"/></w:r>')
    yield made(
        "comment",
        remark,
        "Remarked",
        "Please check this",
        parts={"comments.xml": docx.notes("comments", ["Please check this"])},
    )
    for name, newer, older in (("both", True, True), ("newer", True, False), ("older", False, True)):
        body = p("before") + docx.box(p("inside the box"), newer=newer, older=older) + p("after")
        yield made(f"text-box-{name}", body, "before", "inside the box", "after")
    drawn_over = p("Confidential draft") + docx.box(p("box above"), newer=True, older=True)
    around = {"header1.xml": docx.root("hdr", drawn_over), "footer1.xml": docx.root("ftr", p("Page of the annex"))}
    yield made(
        "headers",
        p(EN),
        EN,
        "Page of the annex",
        "Confidential draft",
        "box above",
        parts=around,
        never=("box above\n\nbox above",),
    )
    yield made(
        "ruby", docx.paragraph(run("この"), docx.ruby("漢字", "かんじ"), run("を読む")), "この漢字(かんじ)を読む"
    )
    sup = "<m:sSup><m:e><m:r><m:t>x</m:t></m:r></m:e><m:sup><m:r><m:t>2</m:t></m:r></m:sup></m:sSup>"
    half = f"<m:f><m:num>{sup}</m:num><m:den><m:r><m:t>y</m:t></m:r></m:den></m:f>"
    yield made(
        "equation",
        docx.paragraph(run("where"), f"<m:oMath>{half}</m:oMath>", run("holds")),
        "where",
        "(x^2)/y",
        "holds",
    )
    numbered = '<w:numPr><w:ilvl w:val="0"/><w:numId w:val="1"/></w:numPr>'
    listed = "".join(docx.paragraph(run(one), properties=numbered) for one in ("first point", "second point"))
    yield made("list", listed, "first point", "second point")
    links: dict[str, str] = {}
    linked = docx.paragraph(
        docx.link("other%20file.docx", "the other", links), docx.link("https://example.org/", "elsewhere", links)
    )
    yield made("links", linked, "the other", "elsewhere", related=links, links=("other file.docx",))
    yield made(
        "right-to-left",
        docx.paragraph(run("تشحن الطلبات سريعا", "<w:rtl/>"), properties="<w:bidi/>"),
        "تشحن الطلبات سريعا",
    )
    control = f"<w:sdt><w:sdtContent>{p('in a content control')}</w:sdtContent></w:sdt>"
    yield made("control", control, "in a content control")
    changed = f'<w:ins w:id="1" w:author="A">{run("inserted words")}</w:ins><w:del w:id="2" w:author="A"><w:r><w:delText>deleted words</w:delText></w:r></w:del>'
    yield made("tracked", docx.paragraph(run("kept"), changed), "kept", "inserted words", never=("deleted words",))
    yield made(
        "half-bold",
        docx.paragraph(run("ware", "<w:b/>"), run("house "), run("知", "<w:i/>"), run("识")),
        "warehouse 知识",
    )
    drawn = "<dgm:dataModel><dgm:pt><a:p><a:r><a:t>Box of a diagram</a:t></a:r></a:p></dgm:pt></dgm:dataModel>"
    yield made("diagram", p(EN), EN, "Box of a diagram", parts={"diagrams/data1.xml": docx.root("x", drawn)})
    outside = {"rPicture": "http://127.0.0.1:9/picture.png"}
    picture = '<w:r><w:drawing><wp:inline><wp:docPr id="1" name="p" descr="A map of the harbour"/><a:graphic><a:graphicData><pic:pic><pic:blipFill><a:blip r:link="rPicture"/></pic:blipFill></pic:pic></a:graphicData></a:graphic></wp:inline></w:drawing></w:r>'
    yield made("picture-elsewhere", docx.paragraph(run(EN), picture), EN, related=outside)
    wide = docx.root("document", f"<w:body>{p(EN, ZH)}</w:body>").replace("UTF-8", "UTF-16").encode("utf-16")
    yield Sample("utf-16.docx", docx.document("", {"document.xml": wide}), (EN, ZH))


def _broken_docx() -> Iterator[Sample]:
    good = docx.document(docx.plain(EN, *(f"paragraph {n}" for n in range(200))))
    secret = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(504) + "EncryptedPackage".encode("utf-16-le") + bytes(2048)
    yield Sample("encrypted.docx", secret, (), _warned("encrypted"))
    yield Sample("really-a-doc.docx", secret.replace("Encrypted".encode("utf-16-le"), bytes(18)), (), _warned("failed"))
    flagged = good.replace(b"PK\x01\x02\x14\x03\x14\0\0\0", b"PK\x01\x02\x14\x03\x14\0\x01\0")
    yield Sample("zip-password.docx", flagged, (), _warned("encrypted"))
    yield Sample("half.docx", good[: len(good) // 2], (), _warned("failed"))
    yield Sample(
        "another-zip.docx", docx.zipped({"mimetype": "application/vnd.oasis.opendocument.text"}), (), _warned("failed")
    )
    yield Sample("noise.docx", random.Random(2).randbytes(9_000), (), _warned("failed"))
    yield Sample("no-words.docx", docx.document(""), (), _warned("empty"))
    grown = "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 12))
    bomb = f'<!DOCTYPE x [<!ENTITY a0 "ha">{grown}]>'
    body = docx.root("document", f"<w:body>{docx.plain('&amp;')}</w:body>")
    for name, kind in (
        ("xml-bomb", bomb),
        ("foreign-entity", '<!DOCTYPE x [<!ENTITY a11 SYSTEM "file:///etc/passwd">]>'),
    ):
        cursed = body.replace("?>", "?>" + kind, 1).replace("&amp;", "&a11;").replace("&amp;", "&a11;")
        yield Sample(
            f"{name}.docx", docx.document("", {"document.xml": cursed}), (), _warned("failed"), never=("root:",)
        )
    broken = {"footnotes.xml": "<w:footnotes>not closed"}
    yield Sample("bad-notes.docx", docx.document(docx.plain(EN), broken), (EN,), _warned("degraded"))
    yield Sample(
        "deep.docx",
        docx.document("<w:sdt><w:sdtContent>" * 9_000 + docx.plain(EN) + "</w:sdtContent></w:sdt>" * 9_000),
        (EN,),
        _warned("degraded"),
    )
    yield Sample("zip-bomb.docx", _large({"word/footnotes.xml": 80 * _MB}), (), _warned("too_large"))
    book = docx.document(docx.plain(*(f"Words of paragraph {n} of a book" for n in range(60_000))))
    yield Sample("book.docx", book, ("paragraph 0 of", "paragraph 59999 of"), _warned("degraded"))
    yield Sample("bomb-beside.docx", _large({"word/media/picture.bin": 80 * _MB}), (EN,))
    yield Sample("many-parts.docx", _large({f"word/header{n}.xml": 1 for n in range(10_001)}), (), _warned("too_large"))


def _large(sizes: dict[str, int]) -> bytes:
    """A document with further parts of zeros, which are written without having them in memory."""
    whole = BytesIO(docx.document(docx.plain(EN)))
    with ZipFile(whole, "a", ZIP_DEFLATED) as archive:
        for name, size in sizes.items():
            with archive.open(name, "w") as part:
                for at in range(0, size, _MB):
                    part.write(bytes(min(_MB, size - at)))
    return whole.getvalue()


def _html() -> Iterator[Sample]:
    def page(name: str, inner: str, *says: str, **more: object) -> Sample:
        return Sample(f"{name}.html", f"<!DOCTYPE html><html><body>{inner}</body></html>".encode(), says, **more)  # type: ignore[arg-type]

    yield page("plain", f"<p>{EN}</p><p>{ZH}</p>", EN, ZH, title="plain")
    heads = f"<title>Shop &amp; more</title><h2>Shipping <a href='#s'>#</a></h2><p>{EN}</p><h3><a href='x.html'>Abroad</a></h3>"
    yield page(
        "headings",
        heads,
        "## Shipping",
        EN,
        "### ",
        title="Shipping",
        headings=("Shipping", "Abroad"),
        links=("x.html",),
    )
    yield page(
        "titled", f"<head><title>Shop &amp; more</title></head><p>{EN}</p>", EN, title="Shop & more", never=("Shop",)
    )
    yield page("table", "<table><tr><td>Item<td>Price<tr><td>Pen<td>12</table>", "| Item | Price |", "| Pen | 12 |")
    yield page(
        "nested-table",
        "<table><tr><td>outer<table><tr><td>inner</td></tr></table></td><td>beside</td></tr></table>",
        "outer",
        "inner",
        "beside",
    )
    yield page(
        "tags-left-out",
        "<p>above<ul><li>one<li>two</ul><p>between<dl><dt>term<dd>meaning</dl>",
        "above",
        "- one",
        "- two",
        "between",
        "term",
        "meaning",
    )
    yield page("list", "<ul><li>one<ol><li>two</li></ol></li><li>three</li></ul>", "- one", "1. two", "- three")
    yield page(
        "code",
        "<pre><code class='language-sh'>```\nls # no heading\n```</code></pre><p># no heading either</p>",
        "````sh",
        "ls # no heading",
        "\\# no heading either",
    )
    linked = "<a href='../b c (1).html#x'>one</a> <a href='/top.pdf'>two</a> <a href='https://e.org'>three</a> <a href='#in'>[[four]]</a>"
    yield page("links", linked, "one", "two", "three", "[[four]]", links=("../b c (1).html",))
    yield page(
        "quiet",
        f"<script>var a=1</script><style>b{{}}</style><p>{EN}</p><template>no</template>",
        EN,
        never=("var a", "b{", "no\n"),
    )
    yield page("half-bold", "<b>ware</b>house <i>知</i>识 ita<del>li</del>c", "warehouse 知识 italic")
    yield page(
        "picture",
        f"<img alt='A map' src='data:image/png;base64,{'A' * 4000}'><p>{EN}</p>",
        "A map",
        EN,
        never=("AAAA",),
    )
    yield page("right-to-left", "<p dir=rtl>ההזמנות נשלחות</p>", "ההזמנות נשלחות")
    yield page("ruby", "<ruby>漢字<rt>かんじ</rt></ruby>を読む", "漢字", "かんじ", "を読む")
    yield page("entities", "<p>a &lt; b &#x4e2d; &euro; &#xD800; &#0; end</p>", "a < b 中 €", "end")
    yield page("unseen", "<p>Ware&shy;house re&#8203;turns</p>", "Warehouse returns")
    yield page("footnote", "<p>Text<sup><a href='#1'>1</a></sup></p><p id=1>The note</p>", "Text1", "The note")

    def encoded(name: str, text: str, codec: str, declared: str = "", mark: bytes = b"", **more: object) -> Sample:
        head = f"<meta charset={declared}>" if declared else ""
        raw = mark + f"<html><head>{head}</head><body><p>{text}</p></body></html>".encode(codec)
        return Sample(f"{name}.html", raw, (text,), **more)  # type: ignore[arg-type]

    guessed = _warned("encoding_guessed")
    yield encoded("mark", ZH, "utf-8", mark=codecs.BOM_UTF8)
    yield encoded("utf-16", ZH, "utf-16-le", "utf-16", codecs.BOM_UTF16_LE)
    yield encoded("utf-16-unmarked", ZH, "utf-16-be", warns=guessed)
    yield encoded("gb18030", ZH, "gb18030", "gb2312")
    yield encoded("gb18030-short", "联通", "gb18030", "gbk")  # which is UTF-8 too, without an error
    yield encoded("gb18030-undeclared", (ZH + "，订单在两个工作日内发货。") * 5, "gb18030", warns=guessed)
    yield encoded("shift-jis", "注文は二営業日以内に発送されます", "cp932", "Shift_JIS")
    yield encoded("iso-2022-jp", "注文は二営業日以内に発送されます", "iso-2022-jp", "iso-2022-jp")
    yield encoded("latin", "Größe und Maß – “quoted”", "cp1252", "iso-8859-1")
    yield encoded("wrong-utf-8", "Größe und Maß der Straße, schön für Käufer", "cp1252", "utf-8", warns=guessed)
    yield encoded("wrong-latin", ZH, "utf-8", "iso-8859-1", warns=guessed)
    yield encoded("unknown-charset", ZH, "utf-8", "x-nonsense")
    xml = f'<?xml version="1.0" encoding="gb18030"?><html xmlns="http://www.w3.org/1999/xhtml"><body><p>{ZH}</p></body></html>'
    yield Sample("declared.xhtml", xml.encode("gb18030"), (ZH,))


def _broken_html() -> Iterator[Sample]:
    lost = _warned("degraded")
    for name, opening in (
        ("script", "<script>if (a < b) c()"),
        ("style", "<STYLE media=all>x{}"),
        ("comment", "<!-- never closed "),
    ):
        yield Sample(f"unclosed-{name}.html", f"<p>before</p>{opening}<p>{EN}</p>".encode(), ("before", EN), lost)
    yield Sample("odd-end.html", f"<script>cool</script language><p>{EN}</p>".encode(), (EN,), never=("cool",))
    quoted = (
        f"<!-- <script> --><p>{EN}</p><script>a = '<style><!--'</script><p>after</p><!-- --><style>x</style><p>end</p>"
    )
    yield Sample("quoted-tags.html", quoted.encode(), (EN, "after", "end"), never=("<", "a =", "x"))
    yield Sample("only-script.html", b"<html><script>var a</script></html>", (), _warned("empty"))
    yield Sample("noise.html", random.Random(3).randbytes(9_000), (), _warned("failed"))
    yield Sample("deep.html", b"<div>" * 5_000 + EN.encode(), (EN,), lost)
    words = "".join(f"<p>word{n} of a long page</p>" for n in range(200_000))
    yield Sample(
        "large.html", f"<title>Long</title>{words}".encode(), ("word0 of", "word199999 of"), lost, title="Long"
    )
    yield Sample("blank.html", b" \n\t", (), _warned("empty"))


def _text() -> Iterator[Sample]:
    guessed = _warned("encoding_guessed")
    yield Sample(
        "utf-16.md",
        codecs.BOM_UTF16_LE + f"# Title\n{ZH}\n".encode("utf-16-le"),
        (ZH,),
        title="Title",
        headings=("Title",),
    )
    yield Sample("gb18030.txt", ((ZH + "，订单在两个工作日内发货。") * 5).encode("gb18030"), (ZH,), guessed)
    yield Sample("rows.csv", f"item,price\n{EN},12\n".encode(), (EN,))
    yield Sample("tree.json", f'{{"a": "{ZH}"}}'.encode(), (ZH,))
    yield Sample("program.py", f"def f():\n    return '{EN}'\n".encode(), (EN,))
    yield Sample("binary.txt", bytes(range(256)) * 8, (), _warned("failed"))
    yield Sample("picture.png", b"\x89PNG\r\n\x1a\n" + bytes(99), (), _warned("unsupported_extension"))
    yield Sample("too-large.md", b"a" * (25 * _MB + 1), (), _warned("too_large"))
    yield Sample("nothing.pdf", b"", (), _warned("empty"))


def mutated(chance: random.Random, raw: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """A file with something wrong in it; of a DOCX now and then in a part, so that it is more than a damaged zip."""
    if not raw.startswith(b"PK") or chance.random() < 0.3:
        return change(raw)
    try:
        with ZipFile(BytesIO(raw)) as archive:
            parts = {one.filename: archive.read(one) for one in archive.infolist() if one.file_size < _MB}
    except Exception:
        return change(raw)
    name = chance.choice(sorted(parts)) if parts else ""
    return docx.zipped({**parts, name: change(parts[name])}) if name else change(raw)
