"""The API of LibreTranslate, as its clients use it: /translate, /detect, /languages, /frontend/settings."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends

from regard.documents.formats import FORMATS
from regard.documents.markup import translate_markup
from regard.search.table import Options
from regard.tasks.translation import Translation
from regard.text.languages import name as language_name

from .asked import Asked, asked
from .described import body
from .limits import Refused
from .service import Service, joined

router = APIRouter(tags=["LibreTranslate"])
Request = Annotated[Asked, Depends(asked)]
_FIELDS = {"q": "texts", "source": "string", "target": "string", "format": "string", "api_key": "string"}
_TRANSLATE = body("q source target", **_FIELDS, alternatives="number")


@router.post("/translate", openapi_extra=_TRANSLATE)
def translate(request: Request) -> dict[str, object]:
    """Translate `q`, a string or a list, from `source` (a code or "auto") into `target`; `format` is text or html."""
    client = request.client()
    texts = _needed(request)
    several = isinstance(request.values["q"], list)
    asked_source, asked_target = (_code(request, name) for name in ("source", "target"))
    kind = request.text("format") or "text"
    if kind not in ("text", "html"):
        raise Refused(400, f"{kind} format is not supported")
    more = request.number("alternatives", 0, 10)
    service = request.service
    target = service.code(asked_target, service.into)
    if target is None:
        raise Refused(400, f"{asked_target} is not supported")
    detected: list[dict[str, object]] = []
    sources: list[str] = []
    for text in texts:
        if asked_source == "auto":
            source, sure = service.source_of([text], target)
            detected.append({"confidence": round(100 * sure), "language": source})
        else:
            source = _source(service, asked_source, target)
        sources.append(source)
    request.clients.charge(client, sum(map(len, texts)))
    found: list[tuple[str, list[str]]] = [("", [])] * len(texts)
    for source in set(sources):
        these = [i for i, one in enumerate(sources) if one == source]
        for i, each in zip(
            these, _translated(request, [texts[i] for i in these], source, target, kind, more), strict=True
        ):
            found[i] = each
    result: dict[str, object] = {"translatedText": [text for text, _ in found] if several else found[0][0]}
    if asked_source == "auto":
        result["detectedLanguage"] = detected if several else detected[0]
    if more:
        result["alternatives"] = [others for _, others in found] if several else found[0][1]
    return result


@router.post("/detect", openapi_extra=body("q", q="texts", api_key="string"))
def detect(request: Request) -> list[dict[str, object]]:
    """The languages that `q` may be in."""
    client, texts = request.client(), _needed(request)
    request.clients.charge(client, sum(map(len, texts)))
    found = request.service.detect(texts[0])
    return [{"confidence": round(100 * sure, 1), "language": code} for code, sure in found]


@router.get("/languages")
def languages(request: Request) -> list[dict[str, object]]:
    """The languages that are translated, and into which."""
    service = request.service
    codes = sorted({code for pair in service.pairs for code in pair})
    return [{"code": code, "name": language_name(code), "targets": service.targets(code)} for code in codes]


@router.get("/frontend/settings")
def settings(request: Request) -> dict[str, object]:
    """What a page needs to know."""
    service = request.service
    source = service.sources[0]
    into = service.targets(source)[0]
    named = {side: {"code": code, "name": language_name(code)} for side, code in (("source", source), ("target", into))}
    return {
        "charLimit": service.limits.max_characters,
        "frontendTimeout": 500,
        "apiKeys": not request.clients.open,
        "keyRequired": not request.clients.open,
        "suggestions": False,
        "filesTranslation": True,
        "supportedFilesFormat": list(FORMATS),
        "language": named,
    }


@router.get("/health")
def health() -> dict[str, str]:
    """That the server answers."""
    return {"status": "ok"}


def _needed(request: Asked) -> list[str]:
    texts = request.texts("q")
    if not texts or (isinstance(request.values["q"], str) and not texts[0]):
        raise Refused(400, "Invalid request: missing q parameter")
    return texts


def _code(request: Asked, name: str) -> str:
    if not (code := request.text(name)):
        raise Refused(400, f"Invalid request: missing {name} parameter")
    return code


def _source(service: Service, asked_source: str, target: str) -> str:
    source = service.code(asked_source, {code for pair in service.pairs for code in pair})
    if source is None:
        raise Refused(400, f"{asked_source} is not supported")
    if source != target and target not in service.targets(source):
        names = (language_name(target), target, language_name(source), source)
        raise Refused(400, "{} ({}) is not available as a target language from {} ({})".format(*names))
    return source


def _translated(
    request: Asked, texts: list[str], source: str, target: str, kind: str, more: int
) -> list[tuple[str, list[str]]]:
    """Of each text its translation and the alternatives, of which marked-up texts have none."""
    service, until = request.service, request.until
    if source == target:
        return [(text, []) for text in texts]
    if kind == "html":
        aligned = Options(alignment=True)

        def plain(lines: list[str]) -> list[Translation]:
            return [found[0] for found in service.translate(lines, source, target, aligned, until=until)]

        return [(text, []) for text in translate_markup(texts, plain)]
    options = Options(n_best=more + 1) if more else Options()
    found = service.translate(texts, source, target, options, sentences=not more, until=until)
    return [(joined(lines), _others(lines, more)) for lines in found]


def _others(lines: list[Translation], more: int) -> list[str]:
    """The alternatives of a text: of all its lines the second, then the third, as far as each has them."""
    best = [[each.text for each in line.hypotheses] or [line.text] for line in lines]
    ranks = range(1, min(more + 1, max(map(len, best))))
    return ["\n".join(each[min(rank, len(each) - 1)] for each in best) for rank in ranks]
