"""One file per kind of fleet: what the controller of a live run puts together for it."""
