"""A bundle written for another library, and verified by what that library makes of it."""

from __future__ import annotations

import shutil
import tempfile
from importlib import util
from pathlib import Path

from regard import bundle as bundles
from regard.errors import BundleError, ModelError, install
from regard.machine import open_to_umask

from .compare import Comparison, compare
from .ctranslate2 import QUANTIZATIONS, CTranslate2, write_ctranslate2
from .huggingface import HuggingFace, write_marian

FORMATS = {"huggingface": "transformers", "ctranslate2": "ctranslate2"}
"""What a bundle can be exported to, and the package that reads it."""


def export(
    path: str | Path, to: str, out: str | Path, *, quantization: str | None = None, verify: bool = True
) -> Comparison | None:
    """Write the bundle at `path` into the new directory `out`; what differs there, unless `verify` is off.

    `quantization` is CTranslate2's. `out` appears only when all is written and verified. Raises ModelError for a model
    that the other library cannot be given, and for a package that is not installed.
    """
    _check(to, quantization, verify)
    bundle = bundles.load(path)
    if (family := bundle.recipe.model.family) != "transformer":
        raise ModelError(
            f"{path}: its model is a {family}, which {FORMATS[to]} has no room for; only a transformer can be exported."
        )
    if bundle.target.order != "left-to-right":
        raise ModelError(
            f'{path}: it writes from right to left (text.order = "{bundle.target.order}"), which {FORMATS[to]} does '
            "not know; only what writes from left to right can be exported."
        )
    out = Path(out)
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise BundleError(f"{out}: is in the way; remove it, or choose another path with --out.")
    final = out.resolve()
    final.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".{final.name}.", suffix=".part", dir=final.parent))
    try:
        if to == "huggingface":
            write_marian(bundle, part)
            found = compare(bundle, HuggingFace(part)) if verify else None
        else:
            write_ctranslate2(bundle, part, quantization or "float32")
            exact = quantization in (None, "float32")
            found = compare(bundle, CTranslate2(part, bundle), exact=exact) if verify else None
        open_to_umask(part, part / "source.spm")
        part.rename(final)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return found


def _check(to: str, quantization: str | None, verify: bool) -> None:
    if to not in FORMATS:
        raise ModelError(f"--to {to}: must be one of {', '.join(FORMATS)}.")
    if quantization is not None and to != "ctranslate2":
        raise ModelError("--quantization is CTranslate2's; leave it out, or export --to ctranslate2.")
    if quantization is not None and quantization not in QUANTIZATIONS:
        raise ModelError(f"--quantization {quantization}: must be one of {', '.join(QUANTIZATIONS)}.")
    if (verify or to == "ctranslate2") and util.find_spec(FORMATS[to]) is None:
        other = "; or pass --no-verify" if to == "huggingface" else ""
        raise ModelError(f"--to {to} needs {FORMATS[to]}, which is not installed: {install(to)}{other}.")
