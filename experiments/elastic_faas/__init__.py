"""Elastic-FaaS (Kathirvel, Parasuraman, IJITEE 2019): experiments, printed table, what we get."""
