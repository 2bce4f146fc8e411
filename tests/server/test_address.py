"""A server that cannot listen says so before it loads anything, with the way out."""

from __future__ import annotations

import socket

import pytest

from regard.apps.cli import main
from regard.errors import ModelError
from regard.server.address import check_address


@pytest.mark.parametrize("command", [["serve", "no-bundle"], ["watch", "no-run"]], ids=["serve", "watch"])
def test_a_port_that_is_taken(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main([*command, "--port", str(port)]) == 2
    said = capsys.readouterr().err
    assert f"--port {port} cannot be had at 127.0.0.1: another program listens there; choose another" in said
    assert "Serving" not in said


@pytest.mark.parametrize("host", ["256.1.1.1", "203.0.113.7", "a" * 70], ids=["no number", "elsewhere", "too long"])
def test_a_host_that_is_not_here(host: str) -> None:
    with pytest.raises(ModelError, match=r"use 127\.0\.0\.1, this machine's own, or 0\.0\.0\.0"):
        check_address(host, 0)


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "localhost"])
def test_what_can_be_listened_at(host: str) -> None:
    check_address(host, 0)
