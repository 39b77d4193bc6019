"""What Locust's page has of Penstock: tab "Fleet", and the options of a session unfolded."""

from collections.abc import Callable, Mapping, Sequence
from json import dumps
from typing import Any, Final

from flask import Response, request

KEY: Final = "fleet"
PARTS: Final[dict[str, list[dict[str, Any]]]] = {
    "extended_tabs": [{"title": "Fleet", "key": KEY}],
    "extended_tables": [
        {"key": KEY, "structure": [{"key": "figure", "title": "Figure"}, {"key": "value", "title": "Value"}]}
    ],
}
UNFOLD: Final = """<script>
new MutationObserver(() => {
  const heading = [...document.querySelectorAll('[aria-expanded="false"]')]
    .find((each) => each.textContent.trim() === "Custom parameters" && !each.dataset.unfolded);
  if (heading) { heading.dataset.unfolded = "yes"; heading.click(); }
}).observe(document.documentElement, { childList: true, subtree: true });
</script>"""
"""Opens the options of a session, which Locust folds, once each time that they appear."""


def add_fleet_tab(web_ui: Any, rows: Callable[[], Sequence[Mapping[str, str]]]) -> None:
    """Extend Locust's page. ``rows`` gives figure and value of each row of the tab, whenever the page asks."""
    web_ui.template_args = {**web_ui.template_args, **PARTS}

    def extend(response: Response) -> Response:
        if request.path.endswith("/stats/requests") and response.is_json:
            response.set_data(dumps({**response.get_json(), "extended_stats": [{"key": KEY, "data": list(rows())}]}))
        elif response.mimetype == "text/html" and request.method == "GET" and not response.is_streamed:
            response.set_data(response.get_data(as_text=True).replace("</body>", f"{UNFOLD}</body>"))
        return response

    web_ui.app.after_request(extend)
