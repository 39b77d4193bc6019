"""The functions of ``functions/stack.yaml`` as Deployments, and the rights of the gateway that looks after them.

``python -m infra.kubernetes.functions`` writes ``base/functions.yaml``. A Deployment has no pods until the gateway asks
for some; which replica a pod is and with what environment, it asks the gateway (``functions.pod``).
"""

from pathlib import Path
from typing import Any, Final

import yaml

import functions
from functions.gateway.pods import PREFIX
from functions.pod import PORT

STACK: Final = Path(functions.__file__).parent / "stack.yaml"
MANIFEST: Final = Path(__file__).parent / "base" / "functions.yaml"
LABEL: Final = "penstock.dev/function"
IMAGE: Final = "penstock/app:0.1.0"
SECRETS: Final = "/var/openfaas/secrets"
HEAD: Final = """\
# Made by `python -m infra.kubernetes.functions` from functions/stack.yaml: change that, not this.
"""


def confined() -> dict[str, Any]:
    """A container's security context."""
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def names() -> list[str]:
    """Of all functions."""
    return list(yaml.safe_load(STACK.read_text())["functions"])


def deployment(function: str) -> dict[str, Any]:
    """Of one function, of no size."""
    labels = {"app.kubernetes.io/name": PREFIX + function, LABEL: function}
    container = {
        "name": "function",
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python", "-m", "functions.pod"],
        "args": ["--gateway", "http://gateway:8080", "--pod", "$(POD_NAME)"],
        "env": [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "ports": [{"name": "http", "containerPort": PORT}],
        # the gateway asks by itself, and sooner: this is what `kubectl get pods` shows
        "readinessProbe": {"httpGet": {"path": "/_/ready", "port": "http"}, "periodSeconds": 2},
        "resources": {"requests": {"cpu": "50m", "memory": "96Mi"}, "limits": {"memory": "384Mi"}},
        "securityContext": confined(),
        "volumeMounts": [
            {"name": "secrets", "mountPath": SECRETS, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - a volume of the pod's own
        ],
    }
    spec = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 15,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 10001,
            "runAsGroup": 10001,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [
            {
                "name": "secrets",
                "secret": {"secretName": "penstock", "items": [{"key": "redis-url", "path": "redis-url"}]},
            },
            {"name": "tmp", "emptyDir": {}},
        ],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": PREFIX + function},
        "spec": {
            "replicas": 0,
            "revisionHistoryLimit": 0,
            "selector": {"matchLabels": {"app.kubernetes.io/name": PREFIX + function}},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def role(functions: list[str]) -> dict[str, Any]:
    """What ``penstock.kubernetes.deployment`` does to these Deployments and their pods, and nothing else."""
    owned = [PREFIX + function for function in functions]
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "gateway"},
        "rules": [
            {
                "apiGroups": ["apps"],
                "resources": ["deployments"],
                "resourceNames": owned[:],
                "verbs": ["list", "watch"],
            },
            {"apiGroups": ["apps"], "resources": ["deployments/scale"], "resourceNames": owned, "verbs": ["patch"]},
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch", "patch"]},
        ],
    }


def manifest() -> str:
    """All of it as YAML."""
    every = names()
    documents: str = yaml.safe_dump_all([role(every), *map(deployment, every)], sort_keys=False, width=120)
    return HEAD + documents


if __name__ == "__main__":
    MANIFEST.write_text(manifest())
