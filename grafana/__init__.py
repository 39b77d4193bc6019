"""Dashboards as code (``grafana.boards``), their JSON (``python -m grafana.generate``), Grafana's ``provisioning``."""
