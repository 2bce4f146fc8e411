"""What the server says of itself in /v1/openapi.json beyond what its functions' types say: bodies and refusals."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Response

Described = dict[str, Any]
_TEXTS: Described = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
_KINDS: dict[str, Described] = {
    "string": {"type": "string"},
    "texts": _TEXTS,
    "flag": {"anyOf": [{"type": "boolean"}, {"type": "string"}]},
    "number": {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}]},
    "file": {"type": "string", "format": "binary"},
}
_REFUSALS = {
    400: "The request makes no sense; the message says why",
    403: "A key is needed, or is not known",
    404: "There is no such thing",
    408: "The request did not come in time",
    413: "The request, or its text, is too large",
    429: "Too many requests, or too much is waiting; wait as long as Retry-After says",
    456: "The quota is used up",
    503: "The server is stopping, or the document is not done; wait as long as Retry-After says",
    504: "The translation takes too long",
}
_ERROR: Described = {
    "type": "object",
    "properties": {"error": {"type": "string"}, "message": {"type": "string"}},
    "minProperties": 1,
    "maxProperties": 1,
}


def body(required: str = "", **fields: str) -> Described:
    """The body that a route takes as JSON or as a form, of which some names are `required`; with a file, as a form."""
    schema: Described = {"type": "object", "properties": {name: _KINDS[kind] for name, kind in fields.items()}}
    if required:
        schema["required"] = required.split()
    kinds = ["multipart/form-data"] if "file" in fields else ["application/json", "application/x-www-form-urlencoded"]
    content = {kind: {"schema": schema} for kind in kinds}
    return {"requestBody": {"required": bool(required), "content": content}}


def gives(kind: str) -> Described:
    """What a route that answers with another kind of content than JSON is described by."""
    event = {"type": "object", "properties": {name: {"type": "string"} for name in ("event", "data")}}
    content = {kind: {"schema": event if kind == "text/event-stream" else {"type": "string"}}}
    return {"response_class": Response, "responses": {200: {"description": "As asked for", "content": content}}}


def describe(app: FastAPI) -> None:
    """Lets the application's description name every answer that it gives."""
    made = app.openapi

    def described() -> Described:
        if app.openapi_schema is None:
            found = made()
            for path in found["paths"].values():
                for operation in path.values():
                    operation["responses"] = _answers(operation["responses"])
            for unused in ("HTTPValidationError", "ValidationError"):
                found.get("components", {}).get("schemas", {}).pop(unused, None)
            app.openapi_schema = found
        return app.openapi_schema

    app.openapi = described  # type: ignore[method-assign]  # as FastAPI's documentation says


def _answers(known: Described) -> Described:
    content = {"application/json": {"schema": _ERROR}}
    refused = {str(code): {"description": said, "content": content} for code, said in _REFUSALS.items()}
    return {**{code: said for code, said in known.items() if code != "422"}, **refused}
