"""The API of DeepL, version 2, as its clients use it: texts, languages, usage and glossaries."""

from __future__ import annotations

import csv
import io
import threading
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Response
from fastapi.responses import PlainTextResponse

from regard.documents.markup import translate_markup
from regard.search.table import Constraints, Options
from regard.tasks.translation import Translation
from regard.text.languages import name as language_name

from .asked import Asked, asked
from .described import body, gives
from .limits import Client, Refused
from .service import joined

router = APIRouter(tags=["DeepL"])
Request = Annotated[Asked, Depends(asked)]
_STRINGS = ("source_lang", "split_sentences", "tag_handling", "formality", "model_type", "glossary_id", "context")
_LISTS = ("glossary_ids", "ignore_tags", "splitting_tags")
_TRANSLATE = body(
    "text target_lang", text="texts", target_lang="string", show_billed_characters="flag",
    **dict.fromkeys(_STRINGS, "string"), **dict.fromkeys(_LISTS, "texts"),
)  # fmt: skip
_NEEDED = ("name", "source_lang", "target_lang", "entries")
_GLOSSARY = body(" ".join(_NEEDED), **dict.fromkeys(_NEEDED, "string"), entries_format="string")
_UNLIMITED = 1_000_000_000_000
MOST_GLOSSARIES, MOST_ENTRIES = 1000, 5000
"""Kept by a server; and of one glossary."""
_REGIONS = {"EN": ("EN-GB", "EN-US"), "PT": ("PT-BR", "PT-PT"), "ZH": ("ZH", "ZH-HANS")}
"""DeepL's clients refuse to translate into EN and PT, and ask for one of these."""


# -- texts -------------------------------------------------------------------------------------------------------------


@router.post("/v2/translate", openapi_extra=_TRANSLATE)
def translate(request: Request) -> dict[str, object]:
    """Translate each of `text` into `target_lang`."""
    client = request.client()
    texts = request.texts("text")
    if not texts:
        raise Refused(400, "Parameter 'text' not specified.")
    service = request.service
    target = _language(request, "target_lang", service.into)
    source = _language(request, "source_lang", service.sources, needed=False)
    if target is None:
        raise Refused(400, "Value for 'target_lang' not supported.")
    if request.text("formality") in ("more", "less"):
        raise Refused(400, "'formality' is not supported for given 'target_lang'.")
    tags = request.text("tag_handling") or ""
    if tags not in ("", "xml", "html"):
        raise Refused(400, "Value for 'tag_handling' not supported.")
    terms = _terms(request, client, source, target)
    characters = [len(text) for text in texts]
    request.clients.charge(client, sum(characters))
    translations = []
    by_source: dict[str, list[int]] = {}
    for i, text in enumerate(texts):
        by_source.setdefault(source or service.source_of([text], target)[0], []).append(i)
    found: dict[int, tuple[str, str]] = {}
    for code, these in by_source.items():
        made = _translated(request, [texts[i] for i in these], code, target, tags, terms)
        found |= {i: (code, text) for i, text in zip(these, made, strict=True)}
    for i, count in enumerate(characters):
        code, text = found[i]
        one: dict[str, object] = {"detected_source_language": code.upper(), "text": text}
        if request.flag("show_billed_characters"):
            one["billed_characters"] = count
        if request.text("model_type"):
            one["model_type_used"] = "quality_optimized"
        translations.append(one)
    return {"translations": translations}


def _translated(
    request: Asked, texts: list[str], source: str, target: str, tags: str, terms: tuple[tuple[str, str], ...]
) -> list[str]:
    if source == target:
        return texts
    service, until = request.service, request.until
    constraints = Constraints(glossary=terms)
    split = request.text("split_sentences")
    sentences = split not in ("0", "false") and not terms  # a term is looked for in the whole line
    if not tags:
        if split == "nonewlines":
            texts = [" ".join(text.split("\n")) for text in texts]
        options = Options(constraints=constraints)
        return list(map(joined, service.translate(texts, source, target, options, sentences=sentences, until=until)))
    options = Options(alignment=True, constraints=constraints)

    def plain(lines: list[str]) -> list[Translation]:
        return [
            found[0] for found in service.translate(lines, source, target, options, sentences=sentences, until=until)
        ]

    ignored, blocks = request.names("ignore_tags"), request.names("splitting_tags")
    return translate_markup(texts, plain, xml=tags == "xml", blocks=blocks, ignored=ignored)


# -- what there is -----------------------------------------------------------------------------------------------------


@router.get("/v2/languages")
def languages(request: Request) -> list[dict[str, object]]:
    """The source languages, or with `type=target` those that are translated into."""
    request.client()
    service = request.service
    if request.text("type") == "target":
        into = [code.upper() for code in service.into]
        codes = [each for code in into for each in _REGIONS.get(code, (code,))]
        return [{"language": code, "name": language_name(code.lower()), "supports_formality": False} for code in codes]
    return [{"language": code.upper(), "name": language_name(code)} for code in service.sources]


@router.get("/v2/usage")
def usage(request: Request) -> dict[str, int]:
    """How many characters the key has had translated, of how many."""
    client = request.client()
    return {"character_count": client.characters, "character_limit": request.service.limits.quota or _UNLIMITED}


@router.get("/v2/glossary-language-pairs")
def glossary_pairs(request: Request) -> dict[str, object]:
    """The pairs that a glossary can be made for."""
    request.client()
    pairs = [{"source_lang": source, "target_lang": target} for source, target in sorted(request.service.pairs)]
    return {"supported_languages": pairs}


# -- glossaries --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Glossary:
    """Terms of one pair of languages, and whose they are."""

    name: str
    source: str
    target: str
    terms: tuple[tuple[str, str], ...]
    owner: str
    identity: str = field(default_factory=lambda: str(uuid.uuid4()))
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat())

    def about(self) -> dict[str, object]:
        """As DeepL's clients read it."""
        return {
            "glossary_id": self.identity,
            "ready": True,
            "name": self.name,
            "source_lang": self.source,
            "target_lang": self.target,
            "creation_time": self.created,
            "entry_count": len(self.terms),
        }


class Glossaries:
    """The glossaries of a running server, by their ids; a key sees its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: dict[str, Glossary] = {}

    def add(self, glossary: Glossary) -> None:
        """Raises Refused (456) where there are too many."""
        with self._lock:
            if len(self._all) >= MOST_GLOSSARIES:
                raise Refused(456, f"Too many glossaries: {MOST_GLOSSARIES} are the most; delete one.")
            self._all[glossary.identity] = glossary

    def of(self, owner: str) -> list[Glossary]:
        """An owner's, the oldest first."""
        with self._lock:
            return [each for each in self._all.values() if each.owner == owner]

    def get(self, identity: str, owner: str) -> Glossary:
        """Raises Refused (404) for one that the owner has not."""
        with self._lock:
            found = self._all.get(identity)
        if found is None or found.owner != owner:
            raise Refused(404, "Glossary not found")
        return found

    def remove(self, identity: str, owner: str) -> None:
        """See `get`."""
        self.get(identity, owner)
        with self._lock:
            self._all.pop(identity, None)


def _glossaries(request: Asked) -> Glossaries:
    found: Glossaries = request.state.glossaries
    return found


@router.post("/v2/glossaries", status_code=201, openapi_extra=_GLOSSARY)
def create_glossary(request: Request) -> dict[str, object]:
    """Make a glossary of `entries`, lines with a tab or a comma between a term and its translation."""
    client = request.client()
    name = request.text("name") or ""
    if not name.strip():
        raise Refused(400, "Parameter 'name' not specified.")
    service = request.service
    source = _language(request, "source_lang", service.sources)
    target = _language(request, "target_lang", {target for _, target in service.pairs})
    if source is None or target is None or (source, target) not in service.pairs:
        raise Refused(400, "Unsupported glossary language pair")
    entries = request.text("entries") or ""
    terms = _entries(entries, request.text("entries_format") or "tsv")
    made = Glossary(name, source, target, terms, client.name)
    _glossaries(request).add(made)
    return made.about()


@router.get("/v2/glossaries")
def list_glossaries(request: Request) -> dict[str, object]:
    """The key's glossaries."""
    client = request.client()
    return {"glossaries": [each.about() for each in _glossaries(request).of(client.name)]}


@router.get("/v2/glossaries/{identity}")
def one_glossary(identity: str, request: Request) -> dict[str, object]:
    """About a glossary."""
    return _glossary(identity, request).about()


@router.get("/v2/glossaries/{identity}/entries", **gives("text/tab-separated-values"))
def glossary_entries(identity: str, request: Request) -> Response:
    """A glossary's terms, tab-separated."""
    lines = "".join(f"{source}\t{target}\n" for source, target in _glossary(identity, request).terms)
    return PlainTextResponse(lines, media_type="text/tab-separated-values")


@router.delete("/v2/glossaries/{identity}", status_code=204)
def delete_glossary(identity: str, request: Request) -> Response:
    """Forget a glossary."""
    client = request.client()
    _glossaries(request).remove(identity, client.name)
    return Response(status_code=204)


def _glossary(identity: str, request: Asked) -> Glossary:
    return _glossaries(request).get(identity, request.client().name)


def _entries(text: str, kind: str) -> tuple[tuple[str, str], ...]:
    if kind not in ("tsv", "csv"):
        raise Refused(400, "Value for 'entries_format' not supported.")
    try:
        rows = [row for row in csv.reader(io.StringIO(text), delimiter="\t" if kind == "tsv" else ",") if row]
    except csv.Error as error:
        raise Refused(400, f"Invalid glossary entries: {error}") from None
    if not rows or any(len(row) < 2 or not row[0].strip() or not row[1].strip() for row in rows):
        raise Refused(400, "Invalid glossary entries: each line has a term, a separator and its translation")
    if len(rows) > MOST_ENTRIES:
        raise Refused(413, f"A glossary has at most {MOST_ENTRIES} entries, and this one {len(rows)}")
    terms = [(row[0].strip(), row[1].strip()) for row in rows]
    if len({term for term, _ in terms}) < len(terms):
        raise Refused(400, "Duplicate entry in a glossary")
    return tuple(terms)


def _terms(request: Asked, client: Client, source: str | None, target: str) -> tuple[tuple[str, str], ...]:
    """The terms of the glossaries that a request names."""
    names = [*([one] if (one := request.text("glossary_id")) else []), *request.names("glossary_ids")]
    if not names:
        return ()
    if source is None:
        raise Refused(400, "Parameter 'source_lang' is needed with a glossary.")
    found = [_glossaries(request).get(name, client.name) for name in names[:5]]
    for glossary in found:
        if (glossary.source, glossary.target) != (source, target):
            raise Refused(400, "The glossary is of another pair of languages.")
    return tuple(term for glossary in found for term in glossary.terms)


# -- requests ----------------------------------------------------------------------------------------------------------


def _language(request: Asked, name: str, known: Iterable[str], needed: bool = True) -> str | None:
    code = request.text(name)
    if not code:
        if needed:
            raise Refused(400, f"Parameter '{name}' not specified.")
        return None
    found = request.service.code(code, known)
    if found is None:
        raise Refused(400, f"Value for '{name}' not supported.")
    return found
