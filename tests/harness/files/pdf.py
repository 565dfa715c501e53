"""A small writer of PDF, ISO 32000-1: enough to put known text into pages, and to break what holds them."""

import hashlib
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

_PAD = bytes.fromhex("28BF4E5E4E758A4164004E56FFFA01082E2E00B6D0683E802F0CA9FE6453697A")
Line = tuple[float, float, str]
"""Where a line begins, in points from the lower left, and its text."""


@dataclass
class Pdf:
    """A document of pages, each a list of lines. `password` is the user's (empty: encrypted all the same); `hidden` draws
    text that nobody sees; `picture` puts an image on each page."""

    pages: Sequence[Sequence[Line]]
    title: str = ""
    outline: Sequence[str] = ()
    password: str | None = None
    packed: bool = False
    hidden: bool = False
    picture: bool = False
    rotated: int = 0
    size: float = 12
    notes: Sequence[str] = ()
    fields: Sequence[str] = ()
    content: bytes | None = None
    objects: list[bytes] = field(default_factory=list)

    def write(self) -> bytes:
        text = "".join(line for page in self.pages for _, _, line in page)
        codes = {character: number for number, character in enumerate(dict.fromkeys(text), 1)}
        self.objects = [b"", b"", *self._font(codes)]  # catalogue and page tree are written last
        picture = self._picture() if self.picture else 0
        kids = [self._page(page, codes, picture) for page in self.pages]
        listed = b" ".join(b"%d 0 R" % kid for kid in kids)
        self.objects[1] = b"<</Type/Pages/Kids[%s]/Count %d>>" % (listed, len(kids))
        self.objects[0] = b"<</Type/Catalog/Pages 2 0 R%s>>" % self._outline(kids)
        info = self._add(b"<</Title %s>>" % _text(self.title)) if self.title else 0
        return assembled(self.objects, info, None if self.password is None else self.password.encode())

    def _add(self, made: bytes) -> int:
        self.objects.append(made)
        return len(self.objects)

    def _font(self, codes: dict[str, int]) -> list[bytes]:
        lines = b"\n".join(
            b"<%04X> <%s>" % (code, one.encode("utf-16-be").hex().encode()) for one, code in codes.items()
        )
        table = b"/CIDInit /ProcSet findresource begin 12 dict begin begincmap /CMapName /U def /CMapType 2 def\n"
        table += b"1 begincodespacerange <0000> <FFFF> endcodespacerange\n"
        table += b"%d beginbfchar\n%s\nendbfchar endcmap end end" % (len(codes), lines)
        below = b"<</Type/Font/Subtype/CIDFontType2/BaseFont/Plain/DW 600/FontDescriptor 5 0 R/CIDSystemInfo"
        return [
            b"<</Type/Font/Subtype/Type0/BaseFont/Plain/Encoding/Identity-H/DescendantFonts[4 0 R]/ToUnicode 6 0 R>>",
            below + b"<</Registry(Adobe)/Ordering(Identity)/Supplement 0>>>>",
            b"<</Type/FontDescriptor/FontName/Plain/Flags 4/FontBBox[0 0 600 800]/ItalicAngle 0/Ascent 800/Descent -200"
            b"/CapHeight 700/StemV 80>>",
            stream(table),
        ]

    def _picture(self) -> int:
        head = b"/Type/XObject/Subtype/Image/Width 8/Height 8/ColorSpace/DeviceGray/BitsPerComponent 8"
        return self._add(stream(bytes(range(64)), head))

    def _page(self, lines: Sequence[Line], codes: dict[str, int], picture: int) -> int:
        drawn = [b"q 500 0 0 700 40 40 cm /P Do Q"] if picture else []
        for x, y, text in lines:
            shown = b"".join(b"%04X" % codes[one] for one in text)
            drawn.append(b"BT %d Tr /F %g Tf 1 0 0 1 %g %g Tm <%s> Tj ET" % (3 * self.hidden, self.size, x, y, shown))
        content = b"\n".join(drawn) if self.content is None else self.content
        number = self._add(
            stream(zlib.compress(content, 9), b"/Filter/FlateDecode") if self.packed else stream(content)
        )
        above = b"/XObject<</P %d 0 R>>" % picture if picture else b""
        page = b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 595 842]/Rotate %d/Contents %d 0 R" % (self.rotated, number)
        return self._add(page + b"/Resources<</Font<</F 3 0 R>>%s>>%s>>" % (above, self._annotations()))

    def _annotations(self) -> bytes:
        """Boxes of text that are laid on a page, and fields of a form that were filled in."""
        font = b"/Resources<</Font<</H<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>>>>>"
        found: list[int] = []
        for kind, texts in ((b"/FreeText", self.notes), (b"/Widget/FT/Tx/T(f)", self.fields)):
            for text in texts:
                look = b"/Type/XObject/Subtype/Form/BBox[0 0 400 20]" + font
                drawn = self._add(stream(b"BT /H 12 Tf 2 5 Td (%s) Tj ET" % text.encode(), look))
                low = 600 - 40 * len(found)
                one = b"<</Type/Annot/Subtype%s/Rect[60 %d 460 %d]/F 4/AP<</N %d 0 R>>/Contents(%s)/V(%s)>>"
                found.append(self._add(one % (kind, low, low + 20, drawn, text.encode(), text.encode())))
        return b"/Annots[%s]" % b" ".join(b"%d 0 R" % one for one in found) if found else b""

    def _outline(self, kids: Sequence[int]) -> bytes:
        if not self.outline:
            return b""
        first, above = len(self.objects) + 1, len(self.objects) + 1 + len(self.outline)
        for number, title in enumerate(self.outline):
            after = b"/Next %d 0 R" % (first + number + 1) if number + 1 < len(self.outline) else b""
            target = kids[min(number, len(kids) - 1)]
            self._add(b"<</Title %s/Parent %d 0 R/Dest[%d 0 R/Fit]%s>>" % (_text(title), above, target, after))
        ends = (first, above - 1, len(self.outline))
        return b"/Outlines %d 0 R" % self._add(b"<</Type/Outlines/First %d 0 R/Last %d 0 R/Count %d>>" % ends)


def lines(*texts: str, x: float = 60, top: float = 780) -> list[Line]:
    """Lines below each other."""
    return [(x, top - 18 * number, text) for number, text in enumerate(texts)]


def stream(content: bytes, head: bytes = b"") -> bytes:
    return b"<<%s/Length %d>>stream\n%s\nendstream" % (head, len(content), content)


def assembled(objects: Sequence[bytes], info: int = 0, password: bytes | None = None) -> bytes:
    """The objects, from 1 on, as a file; encrypted (RC4, 40 bits, 7.6.3) where a password is given."""
    identity, trailer = hashlib.md5(b"written by us").digest(), b""
    kept = list(objects)
    if password is not None:
        padded = (password + _PAD)[:32]
        owner = _rc4(hashlib.md5((b"owner" + _PAD)[:32]).digest()[:5], padded)
        key = hashlib.md5(padded + owner + (-4 & 0xFFFFFFFF).to_bytes(4, "little") + identity).digest()[:5]
        kept = [_encrypted(one, number, key) for number, one in enumerate(objects, 1)]
        kept.append(
            b"<</Filter/Standard/V 1/R 2/O<%s>/U<%s>/P -4>>" % (owner.hex().encode(), _rc4(key, _PAD).hex().encode())
        )
        trailer = b"/Encrypt %d 0 R/ID[<%s><%s>]" % (len(kept), *[identity.hex().encode()] * 2)
    whole, places = bytearray(b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n"), []
    for number, one in enumerate(kept, 1):
        places.append(len(whole))
        whole += b"%d 0 obj\n%s\nendobj\n" % (number, one)
    start = len(whole)
    whole += b"xref\n0 %d\n0000000000 65535 f \n" % (len(kept) + 1)
    whole += b"".join(b"%010d 00000 n \n" % place for place in places)
    trailer += b"/Info %d 0 R" % info if info else b""
    whole += b"trailer\n<</Size %d/Root 1 0 R%s>>\nstartxref\n%d\n%%%%EOF\n" % (len(kept) + 1, trailer, start)
    return bytes(whole)


def _encrypted(made: bytes, number: int, key: bytes) -> bytes:
    head, found, rest = made.partition(b"stream\n")
    if not found:
        return made
    content = rest.removesuffix(b"\nendstream")
    own = hashlib.md5(key + number.to_bytes(3, "little") + b"\0\0").digest()[:10]
    return head + b"stream\n" + _rc4(own, content) + b"\nendstream"


def _rc4(key: bytes, data: bytes) -> bytes:
    state, at = list(range(256)), 0
    for number in range(256):
        at = (at + state[number] + key[number % len(key)]) % 256
        state[number], state[at] = state[at], state[number]
    out, one, two = bytearray(), 0, 0
    for byte in data:
        one = (one + 1) % 256
        two = (two + state[one]) % 256
        state[one], state[two] = state[two], state[one]
        out.append(byte ^ state[(state[one] + state[two]) % 256])
    return bytes(out)


def _text(value: str) -> bytes:
    return b"<FEFF%s>" % value.encode("utf-16-be").hex().encode()
