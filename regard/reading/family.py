"""The name of the span reader among the model families; its page is imported when it is asked for."""

from __future__ import annotations

from regard.models import FAMILIES

FAMILIES.data["span-reader"] = "regard.reading.model"
