"""``python -m tests.faults``: plays seeds, replays one, shrinks what fails."""

import os
import sys

if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets is part of a history
    os.environ["PYTHONHASHSEED"] = "0"
    os.execv(sys.executable, [sys.executable, "-m", "tests.faults", *sys.argv[1:]])

from tests.faults.command import main

sys.exit(main())
