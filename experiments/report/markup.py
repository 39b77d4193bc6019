"""HTML from text: everything is escaped unless it is already ``Html``."""

from collections.abc import Iterable, Sequence
from html import escape


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


Text = str | Html


def safe(value: Text) -> Html:
    """Escaped, unless it is markup."""
    return value if isinstance(value, Html) else Html(escape(value))


def join(parts: Iterable[Text], separator: str = "") -> Html:
    """Escaped parts one after the other."""
    return Html(escape(separator).join(safe(part) for part in parts))


def element(tag: str, *content: Text, **attributes: str) -> Html:
    """``<tag attribute="…">content</tag>``; write ``class_`` and ``data_chart`` for class and data-chart."""
    names = {name: name.removesuffix("_").replace("_", "-") for name in attributes}
    opening = "".join(f' {names[name]}="{escape(value)}"' for name, value in attributes.items())
    return Html(f"<{tag}{opening}>{join(content)}</{tag}>")


def table(headers: Sequence[Text], rows: Iterable[Sequence[Text]], *, kind: str = "", numeric_from: int = 1) -> Html:
    """A table that scrolls sideways where it is too wide; columns from ``numeric_from`` on are set as numbers."""

    def cells(tag: str, values: Sequence[Text]) -> Html:
        return join(
            element(tag, value, **({"class_": "number"} if index >= numeric_from else {}))
            for index, value in enumerate(values)
        )

    head = element("thead", element("tr", cells("th", headers)))
    body = element("tbody", *(element("tr", cells("td", row)) for row in rows))
    return element("div", element("table", head, body, class_=kind), class_="scroll")
