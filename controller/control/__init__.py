"""``penstock control``: the controller on external consumers."""
