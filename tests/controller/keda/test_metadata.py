"""Metadata of any content become a trigger within bounds, or are refused in one line."""

from hypothesis import example, given
from hypothesis import strategies as st

from controller.keda.metadata import KAFKA, KEYS, TLS, Trigger, read_trigger
from penstock.errors import PenstockError
from penstock.registry import scaler_names

DEFAULTS = {"topic": "orders", "group": "shop", "scaler": "linear"}
SECRET = "s3cret-of-nobody"
NUMBERS = ("0", "1", "-1", "nan", "inf", "-inf", "1e999", "9" * 5000, "٣", " 7 ", "0x10", "1_0", "")
VALUES = st.sampled_from((*NUMBERS, *scaler_names(), "/etc/motd.py:Evil", "true", "linear.slo_s=1")) | st.text(
    max_size=12
)
METADATA = st.dictionaries(st.sampled_from((*KEYS, *TLS, "scalerAddress")) | st.text(max_size=8), VALUES, max_size=6)


@example(metadata={"replicas": "9" * 5000})
@example(metadata={"hpaTolerance": "nan"})
@example(metadata={"scaler": "linear\n"})
@example(metadata={"set": "\x1b"})
@example(metadata={"replicas": "-1\x1c"})
@example(metadata={"\u2028": "1"})
@example(metadata={"set": "linear.slo_s=nan"})
@given(metadata=METADATA)
def test_any_metadata_are_a_trigger_within_bounds_or_one_line(metadata: dict[str, str]) -> None:
    try:
        trigger = read_trigger(metadata, DEFAULTS, tls=True)
    except PenstockError as error:
        assert str(error).isprintable(), "a message of several lines"
        return
    assert isinstance(trigger, Trigger)
    assert trigger.replicas is None or trigger.replicas >= 0
    assert trigger.members_per_replica >= 1
    assert trigger.max_replicas is None or trigger.max_replicas >= 1
    assert trigger.hpa_tolerance >= 0
    assert trigger.scale_in_hold_s >= 0
    assert not trigger.scaler.file, "a ScaledObject names a file of this machine"


def test_a_block_of_several_lines_is_read_as_one() -> None:
    trigger = read_trigger({"set": "linear.slo_s=1\nlinear.hold_s=2\n"}, DEFAULTS)
    assert trigger.scaler == read_trigger({"set": "linear.slo_s=1 linear.hold_s=2"}, DEFAULTS).scaler


@given(key=st.sampled_from(KAFKA), suffix=st.sampled_from(("", "FromEnv")), more=METADATA)
def test_a_login_in_any_metadata_is_refused_without_its_value(key: str, suffix: str, more: dict[str, str]) -> None:
    try:
        read_trigger({**more, f"{key}{suffix}": SECRET}, DEFAULTS)
    except PenstockError as error:
        assert SECRET not in str(error)
    else:
        raise AssertionError("a login was taken")
