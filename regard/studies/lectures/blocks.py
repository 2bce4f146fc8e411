"""The Transformer's other parts, and how it is trained: feed-forward, residual, norms, smoothing, warm-up.

Sizes: B sentences, S words, D width, V vocabulary.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.models.transformer import TransformerConfig, build
from regard.nn import ACTIVATIONS, Padded
from regard.nn.layers import BatchNorm, Dropout, FeedForward, LayerNorm, PostNorm
from regard.pictures import bars, curves
from regard.train.objectives import label_smoothed
from regard.train.step import Schedule, paper

from .page import Lecture, heat, listed


@torch.no_grad()
def feed_forward() -> Lecture:
    """FFN(x) = max(0, x W1 + b1) W2 + b2: at each position alike, as on (bn, d), or with a kernel of width 1."""
    layer = FeedForward(8, 32, "relu", 0.0).double()
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    out = layer(x)
    first, second = layer.inner, layer.outer
    by_hand = torch.relu(x @ first.weight.T + first.bias) @ second.weight.T + second.bias
    flat = layer(x.reshape(10, 8)).reshape(2, 5, 8)
    columns = F.conv1d(x.transpose(1, 2), first.weight[..., None], first.bias).relu()
    kernel = F.conv1d(columns, second.weight[..., None], second.bias).transpose(1, 2)
    with torch.device("meta"):
        size = sum(p.numel() for p in FeedForward(512, 2048, "relu", 0.0).parameters())
    across = torch.linspace(-3, 3, 61)
    return Lecture(
        {
            "against the formula, largest difference": float((out - by_hand).abs().max()),
            "against (bn, d), largest difference": float((out - flat).abs().max()),
            "against two convolutions of width 1, largest difference": float((out - kernel).abs().max()),
            "parameters at 512, 2048, 512": size,
        },
        (
            curves(
                "Activations",
                across.tolist(),
                {name: listed(ACTIVATIONS[name](across)) for name in ("relu", "gelu")},
                x="x",
            ),
        ),
    )


def add_and_norm() -> Lecture:
    """LayerNorm(x + f(x)): what comes out has mean 0 and variance 1, and a gradient passes by f."""
    block = PostNorm(16, 0.0).double()
    x = 3 + 2 * torch.randn(4, 16, dtype=torch.float64)
    out = block.add(x, 0.5 * block.enter(x)).detach()
    by_hand = F.layer_norm(x + 0.5 * x, (16,))
    depths = [1, 2, 4, 8, 16, 32, 64]
    reached: dict[str, list[float]] = {"f(x)": [], "x + f(x)": []}
    maps = [torch.randn(16, 16, dtype=torch.float64) * 0.05 for _ in range(max(depths))]
    for depth in depths:
        for name, keep in (("f(x)", 0.0), ("x + f(x)", 1.0)):
            start = torch.ones(16, dtype=torch.float64, requires_grad=True)
            y = start
            for weight in maps[:depth]:
                y = keep * y + torch.tanh(weight @ y)
            (gradient,) = torch.autograd.grad(y.sum(), start)
            reached[name].append(float(gradient.norm()))
    return Lecture(
        {
            "means": listed(out.mean(-1)),
            "variances": listed(out.var(-1, unbiased=False)),
            "against the formula, largest difference": float((out - by_hand).abs().max()),
            "gradient at the bottom of 64 layers, f(x)": reached["f(x)"][-1],
            "gradient at the bottom of 64 layers, x + f(x)": reached["x + f(x)"][-1],
        },
        (
            curves("Gradient at the bottom", depths, reached, x="layers", logarithmic="xy"),
            heat("Before and after the norm", torch.cat((x, out)), axes="word/feature"),
        ),
    )


@torch.no_grad()
def layer_or_batch() -> Lecture:
    """Layer norm looks at one word's features; batch norm at one feature of all words, so neighbours change it."""
    layer, batch = LayerNorm(8).double(), BatchNorm(8).double().train()
    own = torch.randn(1, 4, 8, dtype=torch.float64)
    one, other = (torch.randn(1, 4, 8, dtype=torch.float64) * scale for scale in (1.0, 5.0))
    layout = Padded(torch.tensor([4, 4]), 4)

    def change(norm: LayerNorm | BatchNorm) -> float:
        """Of the first sentence's output when its neighbour is another."""
        results = [norm(torch.cat((own, beside)), layout)[0] for beside in (one, other)]
        return float((results[0] - results[1]).abs().max())

    words = layer(torch.cat((own, one)), layout)
    features = batch(torch.cat((own, one)), layout).flatten(0, 1)
    return Lecture(
        {
            "change by a neighbour, layer norm": change(layer),
            "change by a neighbour, batch norm": change(batch),
            "largest mean of a word after layer norm": float(words.mean(-1).abs().max()),
            "largest mean of a feature after batch norm": float(features.mean(0).abs().max()),
        },
        (
            heat("Layer norm: rows", words.flatten(0, 1), axes="word/feature"),
            heat("Batch norm: columns", features, axes="word/feature"),
        ),
    )


def smoothing() -> Lecture:
    """Label smoothing spreads ε of the mass over V words: certainty costs, and the best is 1 - ε + ε / V."""
    vocabulary, epsilon = 5, 0.1
    shares = torch.linspace(0.5, 0.9999, 400, dtype=torch.float64)
    losses: dict[str, list[float]] = {"hard": [], "smoothed": []}
    for share in shares:
        rest = (1 - share) / (vocabulary - 1)
        logits = torch.full((1, vocabulary), float(rest)).double().log()
        logits[0, 0] = share.log()
        target = torch.tensor([0])
        losses["hard"].append(float(label_smoothed(logits, target, 0.0)))
        losses["smoothed"].append(float(label_smoothed(logits, target, epsilon)))
    target = torch.full((vocabulary,), epsilon / vocabulary, dtype=torch.float64)
    target[0] += 1 - epsilon
    return Lecture(
        {
            "target, ε = 0.1, V = 5": listed(target),
            "probability at which the smoothed loss is least": float(
                shares[int(torch.tensor(losses["smoothed"]).argmin())]
            ),
            "least loss": min(losses["smoothed"]),
            "entropy of the target": float(-(target * target.log()).sum()),
        },
        (
            curves("Loss", shares.tolist(), losses, x="probability of the right word", y="nats"),
            bars("Target", [str(n) for n in range(vocabulary)], {"ε = 0.1": listed(target)}),
        ),
    )


def warm_up() -> Lecture:
    """d_model^-0.5 · min(n^-0.5, n · warmup^-1.5): a line up, then the root down, from the update's number alone."""
    settings = {
        f"{width}, {warm:,}": Schedule(peak=1.0, warmup=warm, total=100_000, width=width)
        for width, warm in ((512, 4000), (512, 8000), (256, 4000))
    }
    updates = list(range(100, 20_001, 100))
    every = {name: [paper(s, n) for n in updates] for name, s in settings.items()}
    base = settings["512, 4,000"]
    return Lecture(
        {
            "rate at update 1": paper(base, 1),
            "rate at update 4,000, its largest": paper(base, 4000),
            "1 / √(512 · 4000)": 1 / math.sqrt(512 * 4000),
            "rate at update 16,000": paper(base, 16_000),
            "update of the largest rate": max(range(1, 20_001), key=lambda n: paper(base, n)),
        },
        (curves("Learning rate by width, warm-up", updates, every, x="update"),),
    )


@torch.no_grad()
def prediction() -> Lecture:
    """The last step: a linear map to the vocabulary, a softmax, and the index of the likeliest word. The state is made
    to lie along the sixth word's row, so that the answer, 5 and "am", is so by construction.
    """
    words = ["a", "I", "student", "thanks", "<end>", "am"]
    projection = torch.nn.Linear(8, len(words), bias=False).double()
    hidden = projection.weight.detach()[5] * 6  # a state that lies along the row of the sixth word
    logits: Tensor = projection(hidden)
    log_probabilities = logits.log_softmax(-1)
    index = int(log_probabilities.argmax())
    return Lecture(
        {
            "index of the likeliest": index,
            "its word": words[index],
            "sum of the probabilities": float(log_probabilities.exp().sum()),
        },
        (bars("Probabilities", words, {"softmax": listed(log_probabilities.exp())}),),
    )


@torch.no_grad()
def dropout() -> Lecture:
    """In training each feature is zero with the probability p and else 1 / (1 - p) times as large, so that the mean
    stays; where the model is used nothing is dropped.
    """
    layer, x = Dropout(0.1), torch.ones(200_000)
    kept, used = layer.train()(x), layer.eval()(x)
    return Lecture(
        {
            "share of zeros, p = 0.1": float((kept == 0).double().mean()),
            "what is not zero": float(kept.max()),
            "1 / (1 - p)": 1 / 0.9,
            "mean in training": float(kept.double().mean()),
            "in use, largest difference": float((used - x).abs().max()),
        },
        (heat("What is kept of 10 x 20 features", kept[:200].view(10, 20)),),
    )


def architecture() -> Lecture:
    """Figure 1 of the paper: what the base model is made of, and who hears of whom. Each word of the encoder hears of
    all words, each of the decoder of those written so far (masked) and of the whole source (cross-attention).
    """
    with torch.device("meta"):
        base = build(TransformerConfig(), 37_000, 37_000)
    parts: dict[str, int] = {}
    for name, parameter in base.named_parameters():
        part = name.partition(".")[0]
        parts[part] = parts.get(part, 0) + parameter.numel()
    model = build(TransformerConfig(width=16, heads=2, feedforward=32, encoder_layers=1, decoder_layers=1), 9, 9)
    model.double().eval()
    layout, ids = Padded(torch.tensor([4]), 4), torch.tensor([[5, 6, 7, 8]])
    other = (ids == ids[0, :, None]).long() * (4 - ids) + ids  # (4, 4): each has another word at one position

    def written(source: Tensor, target: Tensor) -> Tensor:
        return model.decode(target, model.start(model.encode(source, layout), layout))[0][0].detach()

    plain = written(ids, ids)
    found = {
        "encoder": [model.encode(row[None], layout)[0] - model.encode(ids, layout)[0] for row in other],
        "decoder, masked": [written(ids, row[None]) - plain for row in other],
        "cross-attention": [written(row[None], ids) - plain for row in other],
    }
    reads = {name: torch.stack([d.norm(dim=-1) for d in changes]).T for name, changes in found.items()}
    return Lecture(
        {f"parameters, {name}": count for name, count in parts.items()}
        | {"parameters of the base model, 37,000 tokens": sum(parts.values())}
        | {f"pairs of words that hear, {name}": int((table > 1e-12).sum()) for name, table in reads.items()},
        tuple(heat(name, (table > 1e-12).double(), axes="who hears/of whom") for name, table in reads.items()),
    )
