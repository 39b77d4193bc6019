"""Cannot be imported."""

raise RuntimeError("this handler was never finished")
