"""A small writer of DOCX, ISO/IEC 29500: enough to put known text into all the places that Word has for it."""

from collections.abc import Mapping, Sequence
from io import BytesIO
from xml.sax.saxutils import escape
from zipfile import ZIP_DEFLATED, ZipFile

_W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_REL = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_SPACES = (
    f'xmlns:w="{_W}" xmlns:r="{_REL}" xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math" '
    'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006" xmlns:v="urn:schemas-microsoft-com:vml" '
    'xmlns:wps="http://schemas.microsoft.com/office/word/2010/wordprocessingShape" '
    'xmlns:wp="http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing" '
    'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main" '
    'xmlns:pic="http://schemas.openxmlformats.org/drawingml/2006/picture" '
    'xmlns:dgm="http://schemas.openxmlformats.org/drawingml/2006/diagram"'
)
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_KIND = "application/vnd.openxmlformats-officedocument.wordprocessingml"
_STYLES = "".join(
    f'<w:style w:type="paragraph" w:styleId="{one}"><w:name w:val="{name}"/></w:style>'
    for one, name in (("Heading1", "heading 1"), ("Heading2", "heading 2"), ("Title", "Title"))
)


def run(text: str, properties: str = "") -> str:
    return f'<w:r><w:rPr>{properties}</w:rPr><w:t xml:space="preserve">{escape(text)}</w:t></w:r>'


def paragraph(*runs: str, style: str = "", properties: str = "") -> str:
    named = f'<w:pStyle w:val="{style}"/>' if style else ""
    return f"<w:p><w:pPr>{named}{properties}</w:pPr>{''.join(runs)}</w:p>"


def plain(*texts: str) -> str:
    return "".join(paragraph(run(text)) for text in texts)


def table(rows: Sequence[Sequence[str]]) -> str:
    """A table of cells that are XML of their own."""
    lines = ("".join(f"<w:tc>{cell}</w:tc>" for cell in row) for row in rows)
    return "<w:tbl>" + "".join(f"<w:tr>{line}</w:tr>" for line in lines) + "</w:tbl>"


def box(content: str, *, newer: bool, older: bool) -> str:
    """A text box as Word writes it: in its own form, in that of 2003, or in both."""
    inner = f"<w:txbxContent>{content}</w:txbxContent>"
    choice = (
        f'<mc:Choice Requires="wps"><w:drawing><wps:txbx>{inner}</wps:txbx></w:drawing></mc:Choice>' if newer else ""
    )
    fallback = f"<mc:Fallback><w:pict><v:textbox>{inner}</v:textbox></w:pict></mc:Fallback>" if older else ""
    return paragraph(f"<w:r><mc:AlternateContent>{choice}{fallback}</mc:AlternateContent></w:r>")


def ruby(base: str, reading: str) -> str:
    return f"<w:r><w:ruby><w:rubyPr/><w:rt>{run(reading)}</w:rt><w:rubyBase>{run(base)}</w:rubyBase></w:ruby></w:r>"


def link(target: str, text: str, links: dict[str, str]) -> str:
    """A link; `links` takes its target under the name that the XML has for it."""
    name = f"rLink{len(links)}"
    links[name] = target
    return f'<w:hyperlink r:id="{name}">{run(text)}</w:hyperlink>'


def root(tag: str, inner: str) -> str:
    return f'<?xml version="1.0" encoding="UTF-8" standalone="yes"?><w:{tag} {_SPACES}>{inner}</w:{tag}>'


def notes(kind: str, texts: Sequence[str]) -> str:
    """The part of footnotes, endnotes or comments, numbered from 1."""
    tag = kind.removesuffix("s")
    author = ' w:author="A" w:initials="A"' if tag == "comment" else ""
    return root(
        kind, "".join(f'<w:{tag} w:id="{n}"{author}>{plain(text)}</w:{tag}>' for n, text in enumerate(texts, 1))
    )


def document(
    body: str, parts: Mapping[str, str | bytes] | None = None, links: Mapping[str, str] | None = None
) -> bytes:
    """A document of a body and of other parts by their names under word/, all of them related to it."""
    others = dict(parts or {})
    related = "".join(
        f'<Relationship Id="r{n}" Type="{_REL}/{name.rpartition("/")[2].rstrip("0123456789.xml")}" Target="{name}"/>'
        for n, name in enumerate(others)
        if not name.startswith("../")
    )
    external = "".join(
        f'<Relationship Id="{name}" Type="{_REL}/{"image" if target.endswith(".png") else "hyperlink"}" '
        f'Target="{escape(target)}" TargetMode="External"/>'
        for name, target in (links or {}).items()
    )
    types = "".join(
        f'<Override PartName="/word/{name}" ContentType="{_KIND}.{name.removesuffix(".xml")}+xml"/>'
        for name in ("document.xml", "styles.xml", "footnotes.xml", "endnotes.xml", "comments.xml")
    )
    xml = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>'
    content: dict[str, str | bytes] = {
        "[Content_Types].xml": f'{xml}<Types xmlns="{_PACKAGE}/content-types"><Default Extension="rels" '
        f'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>{types}</Types>',
        "_rels/.rels": f'{xml}<Relationships xmlns="{_PACKAGE}/relationships"><Relationship Id="r1" '
        f'Type="{_REL}/officeDocument" Target="word/document.xml"/></Relationships>',
        "word/document.xml": root("document", f"<w:body>{body}</w:body>"),
        "word/styles.xml": root("styles", _STYLES),
        "word/_rels/document.xml.rels": f'{xml}<Relationships xmlns="{_PACKAGE}/relationships"><Relationship Id="s" '
        f'Type="{_REL}/styles" Target="styles.xml"/>{related}{external}</Relationships>',
    }
    content |= {f"word/{name}" if not name.startswith("../") else name[3:]: part for name, part in others.items()}
    return zipped(content)


def zipped(content: Mapping[str, str | bytes]) -> bytes:
    whole = BytesIO()
    with ZipFile(whole, "w", ZIP_DEFLATED) as archive:
        for name, part in content.items():
            archive.writestr(name, part)
    return whole.getvalue()
