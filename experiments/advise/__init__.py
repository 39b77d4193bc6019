"""``penstock advise``: the cheapest scaler with the settings that keep the SLO on a user's trace."""
