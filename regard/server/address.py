"""Whether a server can listen where it is told to: asked before anything is loaded."""

from __future__ import annotations

import errno
import socket

from regard.errors import ModelError


def check_address(host: str, port: int) -> None:
    """Raises ModelError where the address is not this machine's, the port is taken or needs other rights."""
    try:
        places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise ModelError(
            f"--host {host}: no such address ({error}); use 127.0.0.1, this machine's own, or 0.0.0.0, all of them."
        ) from None
    errors = [refused for family, _, _, _, place in places if (refused := _refusal(family, place)) is not None]
    if taken := next((error for error in errors if error.errno in (errno.EADDRINUSE, errno.EACCES)), None):
        why = "another program listens there" if taken.errno == errno.EADDRINUSE else "it needs a superuser's rights"
        raise ModelError(f"--port {port} cannot be had at {host}: {why}; choose another, such as --port {_free()}.")
    if len(errors) == len(places):  # of several, those that this machine lacks are passed over
        raise ModelError(
            f"--host {host}: it cannot be listened at ({errors[0].strerror}); use 127.0.0.1, this machine's own, or "
            "0.0.0.0, all of them."
        )


def _refusal(family: int, place: tuple[object, ...]) -> OSError | None:
    """Why nothing can listen there."""
    try:
        with socket.socket(family, socket.SOCK_STREAM) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
            if family == socket.AF_INET6:
                tried.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            tried.bind(place)
    except OSError as error:
        return error
    return None


def _free() -> int:
    """A port that nobody has."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])
