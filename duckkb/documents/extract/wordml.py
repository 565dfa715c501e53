"""Rewrites the XML of a DOCX (ISO/IEC 29500): replaces elements that mammoth cannot read by elements that it can."""

from collections.abc import Callable, Iterator
from xml.etree import ElementTree as Tree
from xml.etree.ElementTree import Element
from xml.parsers import expat

_MATH = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_VML = "{urn:schemas-microsoft-com:vml}"
_UNREAD = (b"ruby", b"oMath", b"AlternateContent")
_NOT_SHOWN = frozenset({"Fallback", "moveFrom"})


def is_harmless(content: bytes) -> bool:
    """Return whether the content is XML without a document type: no entity expands, and none names a file. Expat
    bounds the rest.
    """
    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = _refuse
    try:
        parser.Parse(content, True)
    except (expat.ExpatError, ValueError):
        return False
    return True


def _refuse(*declaration: object) -> None:
    raise ValueError("a document type")


def local(node: Element) -> str:
    return node.tag.rpartition("}")[2]


def plainer(content: bytes) -> bytes:
    """Rewrite a part so that equations, annotated characters and text boxes become runs of text in their places."""
    if not any(name in content for name in _UNREAD):
        return content
    root = Tree.fromstring(content)
    word = root.tag.rpartition("}")[0] + "}"
    for parent in list(root.iter()):
        for at, child in enumerate(list(parent)):
            make = _MADE.get(local(child))
            replacement = make(child, word) if make else None
            if replacement is not None:
                replacement.tail = child.tail
                parent[at] = replacement
    return bytes(Tree.tostring(root, "utf-8"))


def paragraphs(content: bytes) -> Iterator[str]:
    """Yield the text of each paragraph of a part; skip empty paragraphs."""
    for paragraph in _iter_visible_nodes(Tree.fromstring(content)):
        if local(paragraph) == "p":
            nodes = _iter_visible_nodes(paragraph, _NOT_SHOWN | {"p"})  # a text box has separate paragraphs
            text = "".join(node.text or "" for node in nodes if local(node) == "t").strip()
            if text:
                yield text


def count_shown(content: bytes) -> int:
    """Count the letters and digits of a part that a reader sees."""
    root = Tree.fromstring(content)
    return sum(sum(map(str.isalnum, node.text or "")) for node in _iter_visible_nodes(root) if local(node) == "t")


def _iter_visible_nodes(root: Element, without: frozenset[str] = _NOT_SHOWN) -> Iterator[Element]:
    """Yield the nodes of a part in order, without duplicates of the same content and without moved text."""
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(child for child in reversed(node) if local(child) not in without)


def _run(text: str, word: str) -> Element:
    run = Element(f"{word}r")
    Tree.SubElement(run, f"{word}t").text = text
    return run


def _convert_ruby(node: Element, word: str) -> Element:
    """Convert annotated characters to characters followed by their reading, inside a run."""
    texts = {local(part): "".join(text_node.text or "" for text_node in part.iter(f"{word}t")) for part in node}
    element = Element(f"{word}t")
    element.text = f"{texts.get('rubyBase', '')}({texts.get('rt', '')})"
    return element


def _convert_boxes(node: Element, word: str) -> Element | None:
    """Convert text boxes that exist only in the newer form to the older form, which mammoth reads."""
    fallback = next((element for element in node if local(element) == "Fallback"), None)
    boxes = [element for part in node if local(part) == "Choice" for element in part.iter(f"{word}txbxContent")]
    if not boxes or (fallback is not None and next(fallback.iter(f"{word}txbxContent"), None) is not None):
        return None
    picture = Element(f"{word}pict")
    Tree.SubElement(picture, f"{_VML}textbox").extend(boxes)
    return picture


def _convert_equation(node: Element, word: str) -> Element:
    return _run(f" {_format_linear(node)} ", word)


_MADE: dict[str, Callable[[Element, str], Element | None]] = {
    "ruby": _convert_ruby, "oMath": _convert_equation, "oMathPara": _convert_equation, "AlternateContent": _convert_boxes,
}  # fmt: skip


def _format_linear(node: Element) -> str:
    """Format an equation on one line in UnicodeMath: `a/b`, `x^2`, `x_i`, `√(x)`."""
    if local(node) == "t":
        return node.text or ""
    part = {local(child): child for child in node}
    form = local(node)
    if form == "f" and "num" in part and "den" in part:
        return f"{_format_group(part['num'])}/{_format_group(part['den'])}"
    if form == "rad" and "e" in part:
        return f"√({_format_linear(part['e'])})"
    if form == "nary":
        sign = node.find(f"{_MATH}naryPr/{_MATH}chr")
        character = "" if sign is None else sign.get(f"{_MATH}val", "")
        return f"{character or '∫'}{_format_scripts(part)} {_format_linear(part['e']) if 'e' in part else ''}"
    if form == "d":
        return f"({', '.join(_format_linear(child) for child in node if local(child) == 'e')})"
    if "e" in part and ("sub" in part or "sup" in part):
        return f"{_format_linear(part['e'])}{_format_scripts(part)}"
    return "".join(_format_linear(child) for child in node)


def _format_scripts(part: dict[str, Element]) -> str:
    return "".join(f"{sign}{_format_group(part[name])}" for name, sign in (("sub", "_"), ("sup", "^")) if name in part)


def _format_group(node: Element) -> str:
    text = _format_linear(node)
    return text if len(text) <= 1 else f"({text})"
