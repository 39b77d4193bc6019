"""A trouble is logged once, and a block that meets it is skipped."""

import logging

import pytest

from penstock.log_once import LogOnce

log = logging.getLogger(__name__)


def test_a_block_ends_at_a_named_error_that_is_logged_once_until_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    trouble = LogOnce(log, "away: %s", recovered="back")
    caplog.set_level(logging.INFO)
    for error in (OSError("no route"), OSError("no route"), OSError()):
        with trouble.skipping(OSError, KeyError):
            raise error
    assert trouble.trouble == "OSError"
    for _ in range(2):
        with trouble.skipping(OSError, KeyError):
            pass
    assert [record.message for record in caplog.records] == ["away: no route", "away: OSError", "back"]


def test_any_other_error_passes(caplog: pytest.LogCaptureFixture) -> None:
    trouble = LogOnce(log, "away: %s")
    with pytest.raises(ValueError, match="wrong"), trouble.skipping(OSError):
        raise ValueError("wrong")
    assert not trouble.trouble
    assert not caplog.records
