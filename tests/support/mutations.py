"""Hostile variants of a good text, for Hypothesis: bytes replaced, cut, repeated and inserted."""

from hypothesis import strategies as st

NASTY = (
    b"\xff",
    b"\x00",
    b"[",
    b"{",
    b'"',
    b"9" * 30,
    b"-",
    b"null",
    b"1e999",
    b"NaN",
    b"\\ud800",
    b"\r\n",
    b",",
    b"\xe2\x80",
)


@st.composite
def mutations(draw: st.DrawFn, good: bytes) -> bytes:
    """``good`` with one to six changes at places that are drawn."""
    text = good
    for _ in range(draw(st.integers(1, 6))):
        begin = draw(st.integers(0, len(text)))
        end = draw(st.integers(begin, min(len(text), begin + 40)))
        change = draw(st.sampled_from(["replace", "cut", "repeat", "insert"]))
        piece = draw(st.sampled_from(NASTY) | st.binary(max_size=8))
        part = {"replace": piece, "cut": b"", "repeat": text[begin:end] * 3, "insert": piece + text[begin:end]}[change]
        text = text[:begin] + part + text[end:]
    return text
