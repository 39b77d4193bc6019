"""The lifecycle of one live run, and its composition for each kind of fleet (``kinds``)."""
