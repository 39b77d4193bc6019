"""Dashboards as code and the JSON made from them. Empty until `make up` serves them."""
