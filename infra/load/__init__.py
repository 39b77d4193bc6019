"""Load sessions: Locust's page, and the run behind it whose sender is Locust."""
