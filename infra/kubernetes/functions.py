"""The functions of ``functions/stack.yaml`` as Deployments, which a run makes of those that it needs, and the rights of
the gateway that looks after them.

``python -m infra.kubernetes.functions`` writes ``base/functions.yaml``. A Deployment has no pods until the gateway asks
for some; which replica a pod is and with what environment, it asks the gateway (``functions.pod``).
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

import functions
from functions.gateway.pods import PREFIX
from functions.pod import PORT
from penstock.adapters.kubernetes.pods import WORKLOAD

STACK: Final = Path(functions.__file__).parent / "stack.yaml"
MANIFEST: Final = Path(__file__).parent / "base" / "functions.yaml"
LABEL: Final = "penstock.dev/function"
HEAD: Final = """\
# Made by `python -m infra.kubernetes.functions` from functions/stack.yaml: change that, not this.
"""


CONFINED: Final = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
"""A container's security context."""
ROLE: Final = """
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: gateway, labels: {app.kubernetes.io/name: gateway, app.kubernetes.io/component: gateway}}
rules:
- {apiGroups: [apps], resources: [deployments], resourceNames: @OWNED, verbs: [list, watch]}
- {apiGroups: [apps], resources: [deployments/scale], resourceNames: @OWNED, verbs: [patch]}
- {apiGroups: [''], resources: [pods], verbs: [list, watch, patch]}
"""
"""What ``penstock.adapters.kubernetes.deployment`` does to these Deployments and their pods, and nothing else."""
DEPLOYMENT: Final = f"""
apiVersion: apps/v1
kind: Deployment
metadata: {{name: @NAME, labels: &labels @LABELS}}
spec:
  replicas: 0
  revisionHistoryLimit: 0
  selector: {{matchLabels: {{app.kubernetes.io/name: @NAME}}}}
  template:
    metadata: {{labels: *labels}}
    spec:
      automountServiceAccountToken: false
      enableServiceLinks: false
      terminationGracePeriodSeconds: 15
      securityContext:
        {{runAsNonRoot: true, runAsUser: 10001, runAsGroup: 10001, seccompProfile: {{type: RuntimeDefault}}}}
      containers:
      - name: function
        image: @IMAGE
        imagePullPolicy: IfNotPresent
        command: [python, -m, functions.pod]
        args: [--gateway, 'http://gateway:8080', --pod, $(POD_NAME)]
        env: [{{name: POD_NAME, valueFrom: {{fieldRef: {{fieldPath: metadata.name}}}}}}]
        ports: [{{name: http, containerPort: {PORT}}}]
        # for `kubectl get pods`; the gateway asks by itself, and sooner
        readinessProbe: {{httpGet: {{path: /_/ready, port: http}}, periodSeconds: 2}}
        resources: {{requests: {{cpu: 25m, memory: 96Mi}}, limits: {{memory: 384Mi}}}}
        securityContext: {json.dumps(CONFINED)}
        volumeMounts:
        - {{name: secrets, mountPath: /var/openfaas/secrets, readOnly: true}}
        - {{name: tmp, mountPath: /tmp}}
      volumes:
      - {{name: secrets, secret: {{secretName: penstock, items: [{{key: redis-url, path: redis-url}}]}}}}
      - {{name: tmp, emptyDir: {{}}}}
"""
"""Of one function, without replicas."""


def manifest() -> str:
    """The Role of the gateway as YAML."""
    names = list(yaml.safe_load(STACK.read_text())["functions"])
    role = yaml.safe_load(ROLE.replace("@OWNED", json.dumps([PREFIX + name for name in names])))
    document: str = yaml.safe_dump(role, sort_keys=False, width=120)
    return HEAD + document


def deployments(names: Iterable[str], image: str, labels: Mapping[str, str]) -> list[Any]:
    """Deployments of these functions, for ``kubectl apply``; ``labels`` are those of all our objects."""
    texts = []
    for name in names:
        own = {WORKLOAD: PREFIX + name, "app.kubernetes.io/component": "function", LABEL: name}
        text = DEPLOYMENT.replace("@LABELS", json.dumps({**labels, **own})).replace("@IMAGE", image)
        texts.append(text.replace("@NAME", PREFIX + name))
    return [yaml.safe_load(text) for text in texts]


if __name__ == "__main__":
    MANIFEST.write_text(manifest())
