"""A bundle of the paper's base shape that translates as a smaller one does: for measuring speed with real sentences.

    ./run bench grow --bundle runs/multi30k/bundle --out runs/base

A base model (6 + 6 layers, width 512, feed-forward 2,048, 8 heads, 32,000 tokens) takes days to train here, and a
random one writes no sentences, so no system could decide by itself when it is done. So a trained, smaller pre-norm
Transformer is widened and deepened without changing what it computes (after Chen, Goodfellow and Shlens 2016, Net2Net):

* every feature, head and inner unit stands there several times, and the matrices that read them are divided by as much;
* a layer that is added writes next to nothing: its last matrices are random numbers times 1e-4;
* positions become a table, for sinusoids of more features are others;
* tokens that are added never occur in a line, and have the mean embedding of eight others, so none is ever the best.

No product becomes smaller by it: every system multiplies matrices of the full shape. The bundle says so in its notes.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from workers import BenchmarkError, at_least, exit_code

from regard import bundle as bundles
from regard.bundle import Bundle, Golden
from regard.exchange.vocabulary import with_tokens
from regard.tasks.golden import answers
from regard.text import END, Tokenizer
from regard.text.subwords import Token, TokenKind, tokens_of

NOTE = "a smaller model widened and deepened without changing what it computes: for speed, not for quality"
WRITES = (".attention.output.weight", ".cross.output.weight", ".outer.weight")
"""The matrices of a layer; those whose products are added to what passes by."""
_FILL = 0xF0000  # the first of the characters that fill the vocabulary: for private use, beyond our own escapes


def grown_tokenizer(tokenizer: Tokenizer, size: int) -> Tokenizer:
    """The same with tokens of characters that no line has, up to `size`."""
    model = tokenizer.to_bytes()
    tokens = tokens_of(model)
    fill = [Token(chr(_FILL + i), -1e6 - i, TokenKind.NORMAL) for i in range(size - len(tokens))]
    return Tokenizer.from_bytes(with_tokens(model, [*tokens, *fill], unknown_surface="\u2047"))


def widened(name: str, tensor: Tensor, times: int) -> Tensor:
    """A parameter of a layer, for features that stand there `times` times."""
    if "key_value" in name:
        return torch.cat([_widened(part, times) for part in tensor.chunk(2)])
    return _widened(tensor, times)


def _widened(tensor: Tensor, times: int) -> Tensor:
    return tensor.repeat(times) if tensor.dim() == 1 else tensor.repeat(times, times) / times


def grown(bundle: Bundle, size: int, width: int, layers: int, positions: int) -> dict[str, Tensor]:
    """The parameters of the grown model by their names."""
    model: Any = bundle.model().requires_grad_(False)
    old = {name: p.detach() for name, p in model.named_parameters()}
    times = width // bundle.recipe.model.width
    draw = torch.Generator().manual_seed(1)
    table = old.pop("source.table.weight")
    some = torch.randint(END + 1, len(table), (size - len(table), 8), generator=draw)
    table = torch.cat([table, table[some].mean(1)])
    places = model.source.positions(torch.arange(positions), positions)
    new = {"source.table.weight": table.repeat(1, times) / times**0.5}
    new |= {f"{side}.positions.weight": places.repeat(1, times) for side in ("source", "target")}
    for name, tensor in old.items():
        # The logits: `times` copies of each product, of embeddings that are smaller by the root of `times`.
        new[name] = widened(name, tensor, times) / (times**0.5 if name.startswith("decoder_norm") else 1)
    for side, count in (
        ("encoder", bundle.recipe.model.encoder_layers),
        ("decoder", bundle.recipe.model.decoder_layers),
    ):
        first = {name.removeprefix(f"{side}.0"): p for name, p in new.items() if name.startswith(f"{side}.0.")}
        for number in range(count, layers):
            for name, like in first.items():
                if like.dim() == 1:
                    made = torch.full_like(like, float(name.endswith("norm.weight")))
                else:
                    made = torch.randn(like.shape, generator=draw) * like.shape[1] ** -0.5
                new[f"{side}.{number}{name}"] = made * (1e-4 if name.endswith(WRITES) else 1)
    return new


def write_grown(bundle: Bundle, out: Path, size: int = 32_000, width: int = 512, layers: int = 6) -> Bundle:
    """Write the grown bundle; raises BenchmarkError for a model that cannot be grown in this way."""
    config = bundle.recipe.model
    fits = config.family == "transformer" and config.norm == "pre" and config.share == "all"
    if not fits or config.positions != "sinusoidal" or config.output_bias or width % config.width:
        raise BenchmarkError(
            f"{bundle.path}: only a pre-norm Transformer with sinusoidal positions, one table for all tokens and no "
            f"output bias can be grown, of a width that divides {width}; train recipes/multi30k-de-en/small.toml."
        )
    times, positions = width // config.width, 1024
    shape = {
        "width": width,
        "heads": config.heads * times,
        "feedforward": config.feedforward * times,
        "encoder_layers": layers,
        "decoder_layers": layers,
        "positions": "learned",
        "max_positions": positions,
    }
    recipe = bundle.recipe.model_copy(
        update={"name": f"{bundle.recipe.name}, grown to base", "model": config.model_copy(update=shape)}
    )
    tokenizer = grown_tokenizer(bundle.source, size)
    saved = {
        "recipe": recipe,
        "weights": grown(bundle, size, width, layers, positions),
        "source": tokenizer,
        "target": tokenizer,
        "provenance": bundle.provenance.model_copy(update={"notes": {"grown": NOTE, "of": str(bundle.path)}}),
    }
    made = bundles.load(bundles.save(out, golden=(), **saved))
    found = answers(made.model(), recipe, tokenizer, [golden.source_ids for golden in bundle.golden])
    golden = [
        Golden(source=g.source, source_ids=g.source_ids, target_ids=tuple(ids), output=tokenizer.decode(ids))
        for g, ids in zip(bundle.golden, found, strict=True)
    ]
    return bundles.load(bundles.save(out, golden=golden, **saved))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bundle", type=Path, required=True, help="a small pre-norm Transformer")
    parser.add_argument("--out", type=Path, required=True, help="where the grown bundle is written")
    parser.add_argument("--vocabulary", type=at_least(300), default=32_000, help="tokens (default: 32,000)")
    parser.add_argument("--width", type=at_least(8), default=512)
    parser.add_argument("--layers", type=at_least(1), default=6, help="of the encoder, and of the decoder")
    arguments = parser.parse_args()
    small = bundles.load(arguments.bundle)
    made = write_grown(small, arguments.out, arguments.vocabulary, arguments.width, arguments.layers)
    same = sum(a.output == b.output for a, b in zip(small.golden, made.golden, strict=True))
    print(f"{made.path}: {made.parameters:,} parameters; {same} of {len(made.golden)} golden sentences are the same")
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
