"""Dashboards as code (``grafana.boards``), the JSON made from them (``python -m grafana.generate``), and what Grafana
reads at its start to find both them and Prometheus (``provisioning``).
"""
