"""Locust's page with Penstock's tab: what its server answers."""

from types import SimpleNamespace

from flask import Flask, jsonify

from producers.locust_page import add_fleet_tab


def test_the_page_has_a_tab_with_the_figures_of_the_moment_and_unfolds_the_options() -> None:
    page = SimpleNamespace(app=Flask("page"), template_args={"version": "1"})
    replicas = ["2", "3"]
    add_fleet_tab(page, lambda: [{"figure": "replicas", "value": replicas.pop(0)}])
    page.app.route("/stats/requests", endpoint="stats")(lambda: jsonify({"stats": [1], "state": "running"}))
    page.app.route("/", endpoint="index")(lambda: "<html><body></body></html>")
    page.app.route("/logs", endpoint="logs")(lambda: jsonify({"master": []}))
    client = page.app.test_client()
    for shown in ("2", "3"):
        answer = client.get("/stats/requests").get_json()
        assert answer["stats"] == [1]
        assert answer["extended_stats"] == [{"key": "fleet", "data": [{"figure": "replicas", "value": shown}]}]
    assert "Custom parameters" in client.get("/").get_data(as_text=True)
    assert client.get("/logs").get_json() == {"master": []}
    assert page.template_args["version"] == "1"
    assert page.template_args["extended_tabs"][0]["key"] == page.template_args["extended_tables"][0]["key"] == "fleet"
