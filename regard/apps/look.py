"""The page and the picture of `regard look`, under the name that they have had from the beginning."""

from __future__ import annotations

from regard.explore.page import page as page
from regard.explore.showing import picture as picture
