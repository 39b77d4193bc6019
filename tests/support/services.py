"""Settings of services that tests bring up beside whatever else runs on the machine."""

from infra.local.settings import ServiceSettings


def on_free_ports(**settings: float) -> ServiceSettings:
    """Settings with every port that is not named set to 0, any free one."""
    ports = {name: 0 for name in ServiceSettings.model_fields if name.endswith("_port")}
    return ServiceSettings.model_validate({**ports, **settings})
