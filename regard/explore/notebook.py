"""What a model did with a line, shown in a notebook: the explorer's page in a frame, without any network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from regard.errors import ModelError

from .exploration import explore
from .page import Page, page

if TYPE_CHECKING:
    from regard.tasks.translation import Translation


def shown(translation: Translation, *, language: str = "en") -> Page:
    """The page of what the model did to make this translation; as the last line of a cell it is shown in a frame.

    Where the plain search gives it, the search is there too; else the model is made to write it.
    Raises ModelError for a translation that does not know its line, and where its model has no attention.
    """
    asked = translation.asked
    if asked is None:
        raise ModelError(
            "this translation does not know what it was made of: its line was empty, or it was put together of several "
            "or copied; translate the line again: translator.translate([line])[0].explore()."
        )
    found = explore(asked.translator, asked.line, from_=asked.from_, to=asked.to)
    made = found.steps or found.attention
    if made is None or made.target != translation.text:  # it was asked for otherwise: with constraints, say
        found = explore(asked.translator, asked.line, target=translation.text, from_=asked.from_, to=asked.to)
    return page(found, language=language)
