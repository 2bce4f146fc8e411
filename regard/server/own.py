"""The server's own API, /v1: everything that a bundle can do."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from regard.documents.markup import translate_markup
from regard.errors import RegardError
from regard.search.table import Constraints, Options
from regard.tasks.translation import Translation
from regard.text.languages import name as language_name

from .asked import key_of
from .described import gives
from .guard import lost
from .limits import Client, Clients, Refused
from .service import Service, joined

router = APIRouter(prefix="/v1", tags=["Regard"])
_SEARCH = frozenset(
    "beam penalty alpha method samples temperature top_k top_p seed mbr min_length max_length no_repeat_ngram_size "  # noqa: SIM905
    "shortlist".split()
)
"""Keys of [search] that a request may set. Precision and batch are the server's."""
_MOST_BEAM = 32
"""Of a request, whose memory and time it multiplies."""


_MOST_MATCHED = 32
"""Lines of a text that are looked for in the translation memory."""


class Pair(BaseModel, extra="forbid", frozen=True):
    """The languages of a text; the source is found out where it is left out."""

    source: str | None = Field(None, description="Language code; left out, it is detected.")
    target: str | None = Field(None, description="Language code; may be left out where there is one target.")


class Ask(Pair):
    """A translation that is asked for."""

    text: str | list[str] = Field(description="A text, or several; each may have several lines.")
    format: Literal["text", "html", "xml"] = Field("text", description="With html and xml, tags are kept.")
    split: bool = Field(True, description="Cut lines into sentences.")
    n_best: int = Field(1, ge=1, le=_MOST_BEAM, description="Translations of each line, best first.")
    confidence: bool = Field(False, description="How sure each token and word is.")
    alignment: bool = Field(False, description="Which word comes from which.")
    constraints: Constraints = Field(Constraints(), description="What the translations must keep.")
    search: dict[str, int | float | str | bool] = Field({}, description="Keys of [search] and values in their place.")
    matches: int = Field(0, ge=0, le=10, description="Pairs of the translation memory that are like each line.")


class Given(Pair):
    """Translations whose probability is asked for."""

    pairs: list[tuple[str, str]] = Field(description="Sources, each with a translation; one line each.", min_length=1)


class Text(BaseModel, extra="forbid", frozen=True):
    """A text."""

    text: str = Field(description="Any text.")


class Work:
    """What a request works with: bundles, limits, and who asks."""

    def __init__(self, request: Request) -> None:
        self.service: Service = request.app.state.service
        clients: Clients = request.app.state.clients
        address = request.client.host if request.client else ""
        self.client: Client = clients.admit(key_of(request.headers), address)
        self.charge = clients.charge
        self.until: float = request.scope["regard.until"]

    def languages(self, pair: Pair, texts: list[str]) -> tuple[str, str, float | None]:
        """Source, target, and how sure the source is where it was found out. Raises Refused for what is not served."""
        service = self.service
        targets = service.into
        if pair.target is None and len(targets) > 1:
            raise Refused(400, f"target is needed: one of {', '.join(targets)}")
        target = service.code(pair.target or targets[0], targets)
        if target is None:
            raise Refused(400, f"{pair.target} is not supported; targets are {', '.join(targets)}")
        if pair.source is None:
            source, sure = service.source_of(texts, target)
            return source, target, sure
        named = service.code(pair.source, service.sources)
        if named is None:
            raise Refused(400, f"{pair.source} is not supported; sources are {', '.join(service.sources)}")
        return named, target, None


Working = Annotated[Work, Depends(Work)]


@router.post("/translate")
def translate(ask: Ask, work: Working) -> dict[str, object]:
    """Translate texts. Of each there are its `text`, and its `lines` with all that was asked for."""
    texts = [ask.text] if isinstance(ask.text, str) else ask.text
    _check(texts, work)
    source, target, sure = work.languages(ask, texts)
    options = _options(ask)
    common = {"source": source, "target": target} | ({} if sure is None else {"source_confidence": round(sure, 4)})
    if ask.format != "text":
        marked = Options.of(options, alignment=True)

        def plain(lines: list[str]) -> list[Translation]:
            found = work.service.translate(lines, source, target, marked, sentences=ask.split, until=work.until)
            return [each[0] for each in found]

        return {
            **common,
            "translations": [{"text": t} for t in translate_markup(texts, plain, xml=ask.format == "xml")],
        }
    found = work.service.translate(texts, source, target, options, sentences=_splits(ask), until=work.until)
    translations = []
    for text, lines in zip(texts, found, strict=True):
        shown = [
            line.to_dict() | ({"lost": missing} if (missing := lost(source_line, line.text)) else {})
            for source_line, line in zip(text.split("\n"), lines, strict=True)
        ]
        for line, source_line in list(zip(shown, text.split("\n"), strict=True))[:_MOST_MATCHED] if ask.matches else ():
            near = work.service.matches(source_line, (source, target), ask.matches)
            line["matches"] = [match.to_dict() for match in near]
        translations.append({"text": joined(lines), "lines": shown})
    return {**common, "translations": translations}


@router.post("/stream", **gives("text/event-stream"))
def stream(ask: Ask, work: Working) -> StreamingResponse:
    """Translate one text as server-sent events: `part` events with a piece of text each, and `end`.

    `ended` of the last one is false where the limit of length cut a line off.
    """
    if not isinstance(ask.text, str) or ask.format != "text":
        raise Refused(400, "a stream is of one text without markup")
    _check([ask.text], work)
    source, target, _ = work.languages(ask, [ask.text])
    translator = work.service.translator(source, target)
    options = _options(ask)
    options = Options.of(options, to=target) if translator.languages.targets else options
    lines, ended = ask.text.split("\n"), []

    def parts() -> Iterator[str]:
        for number, line in enumerate(lines):
            if number:
                yield "\n"
            ended.append((yield from translator.stream(line, options)))

    def events() -> Iterator[str]:
        try:
            for part in parts():
                if time.monotonic() > work.until:
                    raise Refused(504, "The translation takes too long; send less text at a time")
                yield _event("part", text=part)
            yield _event("end", text="", ended=all(ended))
        except RegardError as error:
            yield _event("error", text=str(error))

    return StreamingResponse(events(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})


@router.post("/score")
def score(given: Given, work: Working) -> dict[str, object]:
    """The natural log-probability of given translations."""
    from regard.tasks.forced import score_lines

    sources, targets = [source for source, _ in given.pairs], [target for _, target in given.pairs]
    _check([*sources, *targets], work)
    source, target, _ = work.languages(given, sources)
    translator = work.service.translator(source, target)
    found = score_lines(translator, sources, targets, to=target if translator.languages.targets else None)
    return {"log_probabilities": [each.log_probability for each in found]}


@router.post("/detect")
def detect(text: Text, work: Working) -> dict[str, object]:
    """The languages that a text may be in, of those served, likeliest first."""
    _check([text.text], work)
    return {
        "languages": [{"code": code, "confidence": round(sure, 4)} for code, sure in work.service.detect(text.text)]
    }


@router.get("/bundles")
def bundles(work: Working) -> dict[str, object]:
    """The pairs that are translated, and by which bundle."""
    found = []
    for (source, target), translator in sorted(work.service.pairs.items()):
        named = {"source_name": language_name(source), "target_name": language_name(target)}
        found.append({"source": source, "target": target, **named, "name": translator.recipe.name})
    return {"bundles": found}


@router.get("/ready")
def ready(request: Request) -> dict[str, str]:
    """That bundles are loaded and translate."""
    return {"status": "ready", "bundles": str(len(request.app.state.service.pairs))}


def _check(texts: list[str], work: Work) -> None:
    limits = work.service.limits
    if len(texts) > limits.max_texts:
        raise Refused(413, f"{len(texts)} texts exceed the limit of {limits.max_texts}")
    work.charge(work.client, sum(map(len, texts)))


def _splits(ask: Ask) -> bool:
    """A draw, an alternative and a required phrase are a line's, so that lines are not cut where they are asked for."""
    keep = ask.constraints
    return ask.split and not (keep.include or keep.prefix or keep.glossary or ask.n_best > 1)


def _options(ask: Ask) -> Options:
    for key, value in ask.search.items():
        if key not in _SEARCH:
            raise Refused(400, f"search.{key} cannot be set by a request; these can: {', '.join(sorted(_SEARCH))}")
        if key in ("beam", "samples") and isinstance(value, int | float) and value > _MOST_BEAM:
            raise Refused(400, f"search.{key} is {value}; a request may ask for {_MOST_BEAM} at most")
    return Options.of(
        n_best=ask.n_best,
        confidence=ask.confidence,
        alignment=ask.alignment,
        constraints=ask.constraints,
        search=ask.search,
    )


def _event(name: str, **data: object) -> str:
    return f"event: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n"
