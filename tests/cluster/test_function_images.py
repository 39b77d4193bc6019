"""Images of single functions, as `faas-cli build` makes them of our template, in a pod under the restricted policy.

They need to be in the cluster (`infra/images/build.sh functions`).
"""

import hashlib
import json
from typing import Any

import pytest

from infra.kubernetes.functions import CONFINED
from infra.kubernetes.kubectl import Kubectl
from penstock import __version__
from penstock.errors import PenstockError

pytestmark = pytest.mark.cluster

CALL = """
import concurrent.futures, json, sys, urllib.error, urllib.request

def call(_):
    request = urllib.request.Request("http://127.0.0.1:8080/", data=b"a document", method="POST")
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read().decode(), dict(answer.headers)
    except urllib.error.HTTPError as error:
        return error.code, "", {}

with concurrent.futures.ThreadPoolExecutor(2) as callers:
    print(json.dumps(list(callers.map(call, range(2)))))
"""


def pod(function: str, floor_s: float) -> dict[str, Any]:
    container = {
        "name": "function",
        "image": f"penstock/{function}:{__version__}",
        "imagePullPolicy": "Never",
        "env": [{"name": "floor_s", "value": str(floor_s)}],
        "readinessProbe": {"httpGet": {"path": "/_/ready", "port": 8080}, "periodSeconds": 1},
        "securityContext": CONFINED,
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }
    spec = {
        "automountServiceAccountToken": False,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
        "terminationGracePeriodSeconds": 1,
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": function}, "spec": spec}


@pytest.mark.parametrize("function", ["sha256", "merge"])
def test_a_function_serves_one_request_at_a_time(namespace: Kubectl, function: str) -> None:
    namespace.run("wait", "--for=create", "serviceaccount/default", "--timeout=50s")
    namespace.apply(pod(function, floor_s=1.0))
    try:
        namespace.run("wait", f"pod/{function}", "--for=condition=Ready", "--timeout=50s")
    except PenstockError:
        (found,) = namespace.pods()
        if "ErrImageNeverPull" in found.trouble:
            pytest.skip(f"{found.trouble}: infra/images/build.sh functions makes it")
        raise
    for _ in range(5):  # on a busy machine the second may come when the first is over
        raw = namespace.run("exec", function, "--", "python", "-c", CALL)
        (status, body, headers), (other, *_) = sorted(json.loads(raw), key=lambda answer: int(answer[0]))
        if other == 429:
            break
    if function == "sha256":
        assert (status, other) == (200, 429)
        assert json.loads(body)["sha256"] == hashlib.sha256(b"a document").hexdigest()
        assert float(headers["X-Duration-Seconds"]) >= 1.0
    else:
        assert (status, other) == (400, 429), "what it was given is no pair of halves"
    assert int(namespace.run("exec", function, "--", "id", "-u")) == 10001
