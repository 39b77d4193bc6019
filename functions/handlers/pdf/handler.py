"""Document creation 3: a page with the digest and its QR code."""

import io
from typing import Any

from claim_check import FunctionError, field, pack, read_json, unpack
from fpdf import FPDF
from PIL import Image, UnidentifiedImageError

QRCODE_MM = 60


def handle(event: Any, _context: Any) -> dict[str, Any]:
    """``{"sha256", "qrcode"}`` → ``{"sha256", "bytes", "pdf"}``, a parcel with a PDF of one page."""
    request = read_json(event)
    digest = str(field(request, "sha256"))
    document = page(digest, unpack(field(request, "qrcode")))
    return {"body": {"sha256": digest, "bytes": request.get("bytes"), "pdf": pack(document)}}


def page(digest: str, png: bytes) -> bytes:
    """The PDF. Raises FunctionError 400 if ``png`` is no image."""
    document = FPDF()
    document.set_title(digest)
    document.add_page()
    document.set_font("Helvetica", size=9)
    document.cell(text=f"SHA-256 {digest}")
    try:
        with Image.open(io.BytesIO(png)) as image:
            document.image(image, x=20, y=30, w=QRCODE_MM)
    except UnidentifiedImageError:
        raise FunctionError(400, "the QR code is no image") from None
    return bytes(document.output())


def _warm_up() -> None:
    """fpdf2 loads fonts and image filters with its first page: the fork server does that once, not every replica."""
    blank = io.BytesIO()
    Image.new("1", (8, 8)).save(blank, "png")
    page("", blank.getvalue())


_warm_up()
