"""A process that lives as a member of a group does, without any Kafka: it joins, takes what the plan gives it, leaves.

Run as ``python trivial_member.py URL GROUP --replica NAME``. A file ``NAME.stuck`` in its folder makes it keep its
partitions.
"""

import json
import signal
import sys
import time
import urllib.request
from pathlib import Path


def main() -> None:
    base, group, _, replica = sys.argv[1:5]

    def report(phase: str, **terms: object) -> None:
        body = json.dumps({"phase": phase, "at_ns": time.time_ns(), **terms}).encode()
        url = f"{base}/groups/{group}/members/{replica}"
        urllib.request.urlopen(urllib.request.Request(url, body, method="POST"), timeout=60).close()

    def leave(*_: object) -> None:
        report("leaving")
        report("left")
        sys.exit(0)

    signal.signal(signal.SIGTERM, leave)
    report("started")
    serial = -1
    generation = 0
    while True:
        url = f"{base}/groups/{group}/plan?after={serial}&wait_s=0.2"
        with urllib.request.urlopen(url, timeout=60) as answer:
            notice = json.load(answer)
        if notice["serial"] == serial or (Path(f"{replica}.stuck").exists() and generation):
            serial = notice["serial"]
            continue
        serial = notice["serial"]
        generation += 1
        plan = notice.get("plan") or {"epoch": 0, "groups": [], "members": []}
        members = sorted(plan.get("members", [])) or [replica]  # a plan for nobody: whoever is there takes a group
        mine = plan["groups"][members.index(replica)] if replica in members[: len(plan["groups"])] else []
        report("joined", partitions=mine, epoch=plan["epoch"], generation=generation)


if __name__ == "__main__":
    main()
