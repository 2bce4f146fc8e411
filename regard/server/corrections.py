"""Corrections over HTTP: learnt at once, listed, undone, taken along; see `regard.adaptation.keep`."""

from __future__ import annotations

from fastapi import APIRouter, Response
from pydantic import Field

from regard.errors import ModelError
from regard.tasks.engine import has_torch
from regard.text.sentences import split_sentences

from .limits import Refused
from .own import Pair, Working

router = APIRouter(prefix="/v1", tags=["Regard"])
_MOST_CHARACTERS = 2000
_MOST_SENTENCES = 8


class Corrected(Pair):
    """A text and what it should have been translated to."""

    text: str = Field(description="A line of text.", min_length=1, max_length=_MOST_CHARACTERS)
    translation: str = Field(description="Its right translation.", min_length=1, max_length=_MOST_CHARACTERS)


@router.put("/corrections")
def learn(corrected: Corrected, work: Working) -> dict[str, object]:
    """Learn that a sentence is translated so, for all who ask from now on.

    A line of several sentences needs as many in its translation; those that are translated so already teach nothing.
    """
    service = work.service
    if not service.teachable:
        raise Refused(403, "This server takes no corrections; start it with --corrections DIRECTORY")
    if not has_torch():
        raise Refused(501, "Learning needs PyTorch, which this server has not: pip install '.[train]' where it runs")
    texts = [corrected.text, corrected.translation]
    work.charge(work.client, sum(map(len, texts)))
    source, target, _ = work.languages(corrected, texts[:1])
    kept = service.corrections((source, target))
    to = target if kept.base.languages.targets else None
    learnt = []
    for text, translation in _sentences(corrected.text, corrected.translation, source, target):
        try:
            made = kept.learn(text, translation, to=to)
        except ModelError as error:
            raise Refused(409, str(error)) from None
        if made is not None:
            service.put_to_use((source, target))
            learnt.append({"source": source, "target": target, **made.to_dict()})
    return {"corrections": learnt}


@router.get("/corrections")
def listed(work: Working) -> dict[str, object]:
    """The corrections that are in use, in the order in which they were learnt."""
    found = []
    for source, target in sorted(work.service.pairs) if work.service.teachable else ():
        for each in work.service.taught((source, target)):
            found.append({"source": source, "target": target, **each.to_dict()})
    return {"corrections": found, "taken": work.service.teachable}


@router.delete("/corrections/{name}")
def undo(name: str, work: Working) -> dict[str, str]:
    """Take a correction back. Without any, the model's numbers are what they were, to the bit."""
    for pair in work.service.pairs if work.service.teachable else ():
        if name in {each.id for each in work.service.taught(pair)} and work.service.corrections(pair).undo(name):
            work.service.put_to_use(pair)
            return {"undone": name}
    raise Refused(404, "There is no such correction")


@router.get("/corrections/export")
def export(work: Working, source: str | None = None, target: str | None = None) -> Response:
    """All corrections of a pair as an adapter, for `regard translate --adapter` and `regard adapt --merge`."""
    one, other, _ = work.languages(Pair(source=source or work.service.sources[0], target=target), [])
    adapter = work.service.corrections((one, other)).exported()
    if adapter is None:
        raise Refused(404, "There are no corrections of this pair")
    named = {"Content-Disposition": f'attachment; filename="corrections.{one}-{other}.safetensors"'}
    return Response(adapter.to_bytes(), media_type="application/octet-stream", headers=named)


def _sentences(text: str, translation: str, source: str, target: str) -> list[tuple[str, str]]:
    """The sentences of a line with those of its translation, as they are translated one by one."""
    if "\n" in text.strip() or "\n" in translation.strip():
        raise Refused(400, "A correction is of one line; send the lines one by one")
    found = [[s.strip() for s in split_sentences(t, code)] for t, code in ((text, source), (translation, target))]
    if len(found[0]) != len(found[1]):
        raise Refused(
            400,
            f"The text has {len(found[0])} sentences and the translation {len(found[1])}; send a sentence at a time",
        )
    if len(found[0]) > _MOST_SENTENCES:
        raise Refused(413, f"The text has {len(found[0])} sentences; send at most {_MOST_SENTENCES} at a time")
    return list(zip(*found, strict=True))
