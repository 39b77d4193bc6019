"""A server's socket."""

import pytest

from penstock.errors import PenstockError
from penstock.sockets import listen


def test_a_taken_address_is_one_line_that_ends_in_the_way_out() -> None:
    first, port = listen("127.0.0.1", 0, "")
    with first:
        first.listen()
        assert port > 0
        with pytest.raises(
            PenstockError, match=rf"^http://127.0.0.1:{port}: cannot listen there \(.+\); choose another$"
        ):
            listen("127.0.0.1", port, "choose another")


def test_a_host_that_is_not_here_is_told_too() -> None:
    with pytest.raises(PenstockError, match=r"^http://192.0.2.1:80: cannot listen there"):
        listen("192.0.2.1", 80, "choose another")
