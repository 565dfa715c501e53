"""The XML of a DOCX, ISO/IEC 29500: what mammoth does not read is put in words that it does."""

from collections.abc import Callable, Iterator
from xml.etree import ElementTree as Tree
from xml.etree.ElementTree import Element
from xml.parsers import expat

_MATH = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_VML = "{urn:schemas-microsoft-com:vml}"
_UNREAD = (b"ruby", b"oMath", b"AlternateContent")
_NOT_SHOWN = frozenset({"Fallback", "moveFrom"})


def is_harmless(content: bytes) -> bool:
    """Whether this is XML without a document type: no entity grows, and none names a file. Expat itself bounds the rest."""
    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = _refuse
    try:
        parser.Parse(content, True)
    except (expat.ExpatError, ValueError):
        return False
    return True


def _refuse(*declared: object) -> None:
    raise ValueError("a document type")


def local(node: Element) -> str:
    return node.tag.rpartition("}")[2]


def plainer(content: bytes) -> bytes:
    """A part with equations, annotated characters and text boxes as runs of text in their places."""
    if not any(name in content for name in _UNREAD):
        return content
    root = Tree.fromstring(content)
    word = root.tag.rpartition("}")[0] + "}"
    for parent in list(root.iter()):
        for at, child in enumerate(list(parent)):
            make = _MADE.get(local(child))
            made = make(child, word) if make else None
            if made is not None:
                made.tail = child.tail
                parent[at] = made
    return bytes(Tree.tostring(root, "utf-8"))


def paragraphs(content: bytes) -> Iterator[str]:
    """The text of a part, a paragraph each, without those that have none."""
    for paragraph in _visible(Tree.fromstring(content)):
        if local(paragraph) == "p":
            own = _visible(paragraph, _NOT_SHOWN | {"p"})  # what stands in a text box has paragraphs of its own
            text = "".join(one.text or "" for one in own if local(one) == "t").strip()
            if text:
                yield text


def shown(content: bytes) -> int:
    """How many letters and digits of a part a reader sees."""
    root = Tree.fromstring(content)
    return sum(sum(map(str.isalnum, one.text or "")) for one in _visible(root) if local(one) == "t")


def _visible(root: Element, without: frozenset[str] = _NOT_SHOWN) -> Iterator[Element]:
    """What is in a part, in its order, without what stands there a second time and what was moved away."""
    left = [root]
    while left:
        one = left.pop()
        yield one
        left.extend(child for child in reversed(one) if local(child) not in without)


def _run(text: str, word: str) -> Element:
    run = Element(f"{word}r")
    Tree.SubElement(run, f"{word}t").text = text
    return run


def _ruby(node: Element, word: str) -> Element:
    """Characters with their reading behind them; stands inside of a run."""
    texts = {local(part): "".join(one.text or "" for one in part.iter(f"{word}t")) for part in node}
    made = Element(f"{word}t")
    made.text = f"{texts.get('rubyBase', '')}({texts.get('rt', '')})"
    return made


def _boxes(node: Element, word: str) -> Element | None:
    """Text boxes that stand in the newer form alone, in the older one, which mammoth reads."""
    fallback = next((one for one in node if local(one) == "Fallback"), None)
    boxes = [one for part in node if local(part) == "Choice" for one in part.iter(f"{word}txbxContent")]
    if not boxes or (fallback is not None and next(fallback.iter(f"{word}txbxContent"), None) is not None):
        return None
    made = Element(f"{word}pict")
    Tree.SubElement(made, f"{_VML}textbox").extend(boxes)
    return made


def _equation(node: Element, word: str) -> Element:
    return _run(f" {_linear(node)} ", word)


_MADE: dict[str, Callable[[Element, str], Element | None]] = {
    "ruby": _ruby, "oMath": _equation, "oMathPara": _equation, "AlternateContent": _boxes,
}  # fmt: skip


def _linear(node: Element) -> str:
    """An equation on one line, as UnicodeMath writes it: `a/b`, `x^2`, `x_i`, `√(x)`."""
    if local(node) == "t":
        return node.text or ""
    part = {local(one): one for one in node}
    form = local(node)
    if form == "f" and "num" in part and "den" in part:
        return f"{_grouped(part['num'])}/{_grouped(part['den'])}"
    if form == "rad" and "e" in part:
        return f"√({_linear(part['e'])})"
    if form == "nary":
        sign = node.find(f"{_MATH}naryPr/{_MATH}chr")
        given = "" if sign is None else sign.get(f"{_MATH}val", "")
        return f"{given or '∫'}{_scripts(part)} {_linear(part['e']) if 'e' in part else ''}"
    if form == "d":
        return f"({', '.join(_linear(one) for one in node if local(one) == 'e')})"
    if "e" in part and ("sub" in part or "sup" in part):
        return f"{_linear(part['e'])}{_scripts(part)}"
    return "".join(_linear(one) for one in node)


def _scripts(part: dict[str, Element]) -> str:
    return "".join(f"{sign}{_grouped(part[name])}" for name, sign in (("sub", "_"), ("sup", "^")) if name in part)


def _grouped(node: Element) -> str:
    text = _linear(node)
    return text if len(text) <= 1 else f"({text})"
