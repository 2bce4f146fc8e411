"""A request's values, however a client sends them: as JSON, as a form, in the query; and who sends them."""

from __future__ import annotations

import json

from fastapi import Request
from starlette.datastructures import Headers, UploadFile

from .limits import Client, Clients, Refused
from .service import Service


class Asked:
    """A request to one of the APIs: its values by name, and who asks."""

    def __init__(self, request: Request, values: dict[str, object], files: dict[str, tuple[str, bytes]]) -> None:
        self.values, self.files = values, files
        self.service: Service = request.app.state.service
        self.clients: Clients = request.app.state.clients
        self.until: float = request.scope["regard.until"]
        self.headers = request.headers
        self.state = request.app.state
        self._address = request.client.host if request.client else ""

    def client(self) -> Client:
        """Who asks, by the key that any of the APIs' clients send; see `Clients.admit`."""
        named = (self.text(name) for name in ("api_key", "apiKey", "auth_key"))
        return self.clients.admit(key_of(self.headers) or next(filter(None, named), ""), self._address)

    def text(self, name: str) -> str | None:
        """A value that is one string; None where it is left out. Raises Refused for any other value."""
        value = self.values.get(name)
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        if value is None or isinstance(value, str):
            return value
        if isinstance(value, bool | int | float):
            return str(value).lower() if isinstance(value, bool) else str(value)
        raise Refused(400, f"Invalid request: {name} must be a string")

    def texts(self, name: str) -> list[str] | None:
        """A value that is a list of strings, or one of them; None where it is left out."""
        value = self.values.get(name)
        if value is None:
            return None
        found = value if isinstance(value, list) else [value]
        texts = [each for each in found if isinstance(each, str)]
        if len(texts) < len(found):
            raise Refused(400, f"Invalid request: {name} must be a string or a list of strings")
        most = self.service.limits.max_texts
        if len(found) > most:
            raise Refused(413, f"Invalid request: {len(found)} texts exceed the limit of {most}")
        return texts

    def flag(self, name: str, default: bool = False) -> bool:
        """A value that is yes or no."""
        value = self.text(name)
        return default if value is None else value.strip().lower() in ("1", "true", "yes", "on")

    def number(self, name: str, default: int, most: int) -> int:
        """A whole number from 0 to `most`. Raises Refused for any other value."""
        value = self.text(name)
        if value is None or value == "":
            return default
        if not value.isascii() or not value.isdigit() or int(value[:9]) > most or len(value) > 9:
            raise Refused(400, f"Invalid request: {name} must be a whole number from 0 to {most}")
        return int(value)

    def names(self, name: str) -> list[str]:
        """A list of names: of strings, or of one with commas."""
        return [part.strip() for each in self.texts(name) or () for part in each.split(",") if part.strip()]


def key_of(headers: Headers) -> str:
    """The key in a request's headers; empty where there is none."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    return key.strip() if scheme in ("Bearer", "DeepL-Auth-Key") else ""


async def asked(request: Request) -> Asked:
    """The values of a request, those of the body before those of the query. Raises Refused (400) for a broken body."""
    values: dict[str, object] = {}
    files: dict[str, tuple[str, bytes]] = {}
    _add(values, [(name, value) for name, value in request.query_params.multi_items()])
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind == "multipart/form-data":
        async with request.form(max_files=4, max_fields=1000) as form:
            for name, value in form.multi_items():
                if isinstance(value, UploadFile):
                    files[name] = (value.filename or "", await value.read())
            _add(values, [(name, value) for name, value in form.multi_items() if isinstance(value, str)])
        return Asked(request, values, files)
    body = await request.body()
    if kind == "application/json" or (body[:1] in b"{[" and kind != "application/x-www-form-urlencoded" and body):
        try:
            found = json.loads(body) if body else {}
        except (ValueError, RecursionError):
            raise Refused(400, "Invalid JSON format") from None
        if not isinstance(found, dict):
            raise Refused(400, "Invalid JSON format: an object is needed")
        values |= {name: _whole(value) for name, value in found.items()}
    elif body:
        async with request.form(max_fields=1000) as form:
            _add(values, [(name, value) for name, value in form.multi_items() if isinstance(value, str)])
    return Asked(request, values, files)


def _whole(value: object) -> object:
    """A value without halves of characters, which JSON can spell and no text has."""
    if isinstance(value, list):
        return [_whole(each) for each in value] if all(isinstance(each, str) for each in value) else value
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def _add(values: dict[str, object], pairs: list[tuple[str, str]]) -> None:
    """What is given several times is a list."""
    found: dict[str, list[str]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    values |= {name: each[0] if len(each) == 1 else each for name, each in found.items()}
