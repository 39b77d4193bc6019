"""A worker in a pod does not choose its name: it asks the controller which replica it is.

Plans name replicas; a Deployment's pods have names of their own. The controller learns of a pod from Kubernetes, gives
it the name of a replica that it wants, and answers.
"""

import logging
import signal
import sys
import time
from contextlib import closing
from typing import Final

from consumers.plan_client import PlanClient, PlanRefusedError, PlanServiceError

log = logging.getLogger(__name__)

WAIT_S: Final = 20.0
RETRY_S: Final = 0.2


def ask_replica(url: str, group: str, process: str) -> str:
    """The replica that ``process`` is, asked of the plan service at ``url`` for as long as it takes. SIGTERM meanwhile
    ends the process with exit code 0: there is nothing yet to be put in order.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    said = ""
    with closing(PlanClient(url, group)) as client:
        while True:
            try:
                return client.replica(process, WAIT_S)
            except PlanServiceError as error:
                if str(error) != said:
                    log.info("%s; asking again which replica this is", error)
                said = str(error)
                if not isinstance(error, PlanRefusedError):
                    time.sleep(RETRY_S)
