"""Parts that queue and network fleets share: function apps as processes or pods, and their containers."""
