# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
"""Attention over packed sequences and the loss, on GPUs, in Triton; beside the places that ask stand the references.

Attention goes FlashAttention's way (Dao et al. 2022), which keeps the logarithms of the weights' sums for the backward
pass, but is made for sentences: PyTorch's kernel for packs gives each its own blocks of 128 tokens, where most have
some 25. Behind the last sequence of a pack lies the tail, which belongs to none and gets zeros. Sizes: L queries and M
keys in the packs, B sequences, H heads of widths Dk and Dv; N targets, V tokens of a vocabulary.
"""

from __future__ import annotations

import math

import torch
import triton
from torch import Tensor
from triton import language as tl

BLOCK, LAUNCH = 32, {"num_warps": 4, "num_stages": 1}
"""Tokens of a sequence that are worked on at a time, and how: few loops go round twice, so none is spread in stages."""


# -- attention ---------------------------------------------------------------------------------------------------------


@triton.jit
def _part(starts, tokens):
    """Where this program's sequence begins, its length, and how many rows it has: the tail has rows, but no length."""
    line, lines = tl.program_id(0), tl.num_programs(0) - 1
    first = tl.load(starts + line)
    rows = tl.load(starts + line + 1, mask=line < lines, other=tokens) - first
    return first.to(tl.int64), tl.where(line < lines, rows, 0), rows


@triton.jit
def _places(first, n, end, row, head, width, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    """Where a sequence's rows lie from the n-th on, for this program's head, and which of them there are."""
    rows, columns = n + tl.arange(0, BLOCK)[:, None], tl.arange(0, WIDTH)[None, :]
    return (first + rows) * row + tl.program_id(1) * head + columns, (rows < end) & (columns < width)


@triton.jit
def _rows(x, first, n, end, row, head, width, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    places, there = _places(first, n, end, row, head, width, BLOCK, WIDTH)
    return tl.load(x + places, mask=there, other=0.0)


@triton.jit
def _scores(query, key, m, n, keys, CAUSAL: tl.constexpr, PRECISE: tl.constexpr, BLOCK: tl.constexpr):
    """The scores of the queries from the m-th on with the keys from the n-th on."""
    ours, theirs = m + tl.arange(0, BLOCK)[:, None], n + tl.arange(0, BLOCK)[None, :]
    seen = theirs < tl.minimum(keys, ours + 1) if CAUSAL else theirs < keys
    return tl.where(seen, tl.dot(query, tl.trans(key), input_precision=PRECISE), -float("inf"))


@triton.jit
def _forward(
    q, k, v, mixed, sums, q_starts, k_starts, q_tokens, k_tokens, q_row, q_head, k_row, k_head, v_row, v_head, dk, dv,
    CAUSAL: tl.constexpr, PRECISE: tl.constexpr, BLOCK: tl.constexpr, WK: tl.constexpr, WV: tl.constexpr,
):  # fmt: skip
    """The mixed values (L, H, Dv), and of each query and head the logarithm of its weights' sum, (H, L)."""
    head, heads = tl.program_id(1), tl.num_programs(1)
    q_first, _, q_rows = _part(q_starts, q_tokens)
    k_first, keys, _ = _part(k_starts, k_tokens)
    for m in range(tl.program_id(2) * BLOCK, q_rows, tl.num_programs(2) * BLOCK):
        query = _rows(q, q_first, m, q_rows, q_row, q_head, dk, BLOCK, WK)
        most = tl.full([BLOCK], -float("inf"), tl.float32)
        total, sum_ = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK, WV], tl.float32)
        for n in range(0, tl.minimum(keys, m + BLOCK) if CAUSAL else keys, BLOCK):
            key = _rows(k, k_first, n, keys, k_row, k_head, dk, BLOCK, WK)
            value = _rows(v, k_first, n, keys, v_row, v_head, dv, BLOCK, WV)
            scores = _scores(query, key, m, n, keys, CAUSAL, PRECISE, BLOCK)
            higher = tl.maximum(most, tl.max(scores, 1))
            weights, kept = tl.exp(scores - higher[:, None]), tl.exp(most - higher)
            total = total * kept + tl.sum(weights, 1)
            sum_ = sum_ * kept[:, None] + tl.dot(weights.to(value.dtype), value, input_precision=PRECISE)
            most = higher
        total = tl.where(total > 0, total, 1.0)  # a query without keys is given zeros
        places, there = _places(q_first, m, q_rows, heads * dv, dv, dv, BLOCK, WV)
        tl.store(mixed + places, sum_ / total[:, None], mask=there)
        ours = m + tl.arange(0, BLOCK)
        tl.store(sums + head * q_tokens + q_first + ours, most + tl.log(total), mask=ours < q_rows)


@triton.jit
def _backward(
    q, k, v, mixed, sums, given, q_made, k_made, v_made, q_starts, k_starts, q_tokens, k_tokens,
    q_row, q_head, k_row, k_head, v_row, v_head, dk, dv,
    CAUSAL: tl.constexpr, PRECISE: tl.constexpr, BLOCK: tl.constexpr, WK: tl.constexpr, WV: tl.constexpr,
):  # fmt: skip
    """The gradients of queries (L, H, Dk), keys (M, H, Dk) and values (M, H, Dv), for that `given` of the output."""
    head, heads = tl.program_id(1), tl.num_programs(1)
    q_first, queries, q_rows = _part(q_starts, q_tokens)
    k_first, keys, k_rows = _part(k_starts, k_tokens)
    sums += head * q_tokens + q_first
    begin, stride = tl.program_id(2) * BLOCK, tl.num_programs(2) * BLOCK
    at_once = (queries <= BLOCK) & (keys <= BLOCK) & (keys > 0)  # then one block of weights gives all three gradients
    for n in range(begin, k_rows, stride):
        key = _rows(k, k_first, n, keys, k_row, k_head, dk, BLOCK, WK)
        value = _rows(v, k_first, n, keys, v_row, v_head, dv, BLOCK, WV)
        to_key, to_value = tl.zeros([BLOCK, WK], tl.float32), tl.zeros([BLOCK, WV], tl.float32)
        for m in range(n if CAUSAL else 0, queries, BLOCK):
            query = _rows(q, q_first, m, queries, q_row, q_head, dk, BLOCK, WK)
            out = _rows(mixed, q_first, m, queries, heads * dv, dv, dv, BLOCK, WV)
            back = _rows(given, q_first, m, queries, heads * dv, dv, dv, BLOCK, WV)
            ours = m + tl.arange(0, BLOCK)
            sum_ = tl.load(sums + ours, mask=ours < queries, other=float("inf"))
            weights = tl.exp(_scores(query, key, m, n, keys, CAUSAL, PRECISE, BLOCK) - sum_[:, None])
            drawn = tl.sum(out.to(tl.float32) * back.to(tl.float32), 1)
            change = weights * (tl.dot(back, tl.trans(value), input_precision=PRECISE) - drawn[:, None])
            to_value += tl.dot(tl.trans(weights.to(back.dtype)), back, input_precision=PRECISE)
            to_key += tl.dot(tl.trans(change.to(query.dtype)), query, input_precision=PRECISE)
            if at_once:
                to_query = tl.dot(change.to(key.dtype), key, input_precision=PRECISE)
                places, there = _places(q_first, 0, queries, heads * dk, dk, dk, BLOCK, WK)
                tl.store(q_made + places, to_query, mask=there)
        places, there = _places(k_first, n, k_rows, heads * dk, dk, dk, BLOCK, WK)
        tl.store(k_made + places, to_key, mask=there)
        places, there = _places(k_first, n, k_rows, heads * dv, dv, dv, BLOCK, WV)
        tl.store(v_made + places, to_value, mask=there)
    for m in range(begin, tl.where(at_once, 0, q_rows), stride):
        query = _rows(q, q_first, m, queries, q_row, q_head, dk, BLOCK, WK)
        out = _rows(mixed, q_first, m, queries, heads * dv, dv, dv, BLOCK, WV)
        back = _rows(given, q_first, m, queries, heads * dv, dv, dv, BLOCK, WV)
        ours = m + tl.arange(0, BLOCK)
        sum_ = tl.load(sums + ours, mask=ours < queries, other=float("inf"))
        drawn = tl.sum(out.to(tl.float32) * back.to(tl.float32), 1)
        to_query = tl.zeros([BLOCK, WK], tl.float32)
        for n in range(0, tl.minimum(keys, m + BLOCK) if CAUSAL else keys, BLOCK):
            key = _rows(k, k_first, n, keys, k_row, k_head, dk, BLOCK, WK)
            value = _rows(v, k_first, n, keys, v_row, v_head, dv, BLOCK, WV)
            weights = tl.exp(_scores(query, key, m, n, keys, CAUSAL, PRECISE, BLOCK) - sum_[:, None])
            change = weights * (tl.dot(back, tl.trans(value), input_precision=PRECISE) - drawn[:, None])
            to_query += tl.dot(change.to(key.dtype), key, input_precision=PRECISE)
        places, there = _places(q_first, m, q_rows, heads * dk, dk, dk, BLOCK, WK)
        tl.store(q_made + places, to_query, mask=there)


def _rest(q: Tensor, k: Tensor, v: Tensor, starts: Tensor, causal: bool) -> tuple[tuple[int, ...], list[int | str]]:
    """The grid of programs, and what kernels are told of tensors (N, H, D)."""
    # A sequence four times as long as the mean has a program for each of its blocks; what has less leaves some idle.
    share = triton.cdiv(4 * len(q), BLOCK * max(1, len(starts) - 1))
    grid = len(starts), q.shape[1], min(share, 64)
    strides = [n for x in (q, k, v) for n in x.stride()[:2]]
    widths = q.shape[2], v.shape[2]
    padded = (max(16, triton.next_power_of_2(n)) for n in widths)
    precise = "ieee" if q.dtype == torch.float32 else "tf32"
    return grid, [len(q), len(k), *strides, *widths, causal, precise, BLOCK, *padded]


@torch.library.custom_op("regard::attend", mutates_args=())
def _attend(q: Tensor, k: Tensor, v: Tensor, q_starts: Tensor, k_starts: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
    mixed, sums = v.new_empty(*q.shape[:2], v.shape[2]), q.new_empty(q.shape[1], len(q), dtype=torch.float32)
    grid, rest = _rest(q, k, v, q_starts, causal)
    _forward[grid](q, k, v, mixed, sums, q_starts, k_starts, *rest, **LAUNCH)
    return mixed, sums


@_attend.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, *rest: object) -> tuple[Tensor, Tensor]:
    return v.new_empty(*q.shape[:2], v.shape[2]), q.new_empty(q.shape[1], len(q), dtype=torch.float32)


@torch.library.custom_op("regard::attend_back", mutates_args=())
def _attend_back(
    given: Tensor, q: Tensor, k: Tensor, v: Tensor, q_starts: Tensor, k_starts: Tensor, mixed: Tensor, sums: Tensor,
    causal: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    made = [x.new_empty(x.shape) for x in (q, k, v)]
    grid, rest = _rest(q, k, v, q_starts, causal)
    _backward[grid](q, k, v, mixed, sums, given.contiguous(), *made, q_starts, k_starts, *rest, **LAUNCH)
    return made[0], made[1], made[2]


@_attend_back.register_fake
def _(given: Tensor, q: Tensor, k: Tensor, v: Tensor, *rest: object) -> tuple[Tensor, Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _keep(ctx, inputs, output):
    *tensors, ctx.causal = inputs
    ctx.save_for_backward(*tensors, *output)
    ctx.set_materialize_grads(False)


def _back(ctx, given, _):
    return *_attend_back(given, *ctx.saved_tensors, ctx.causal), None, None, None


_attend.register_autograd(_back, setup_context=_keep)


def attend(q: Tensor, k: Tensor, v: Tensor, q_starts: Tensor, k_starts: Tensor, causal: bool) -> Tensor:
    """What `native.attend` does: queries (1, H, L, Dk), keys (1, H, M, Dk), values (1, H, M, Dv) -> (1, H, L, Dv)."""
    rows = (x[0].transpose(0, 1) if x.stride(3) == 1 else x[0].transpose(0, 1).contiguous() for x in (q, k, v))
    mixed: Tensor = _attend(*rows, q_starts, k_starts, causal)[0]
    return mixed.transpose(0, 1)[None]


# -- the loss ----------------------------------------------------------------------------------------------------------


@triton.jit
def _smoothed(logits, targets, losses, parts, smoothing, PART: tl.constexpr, BLOCK: tl.constexpr):
    """A row's loss, and its gradient in the place of the logits: the second time they are still in the cache."""
    row, columns, width = tl.program_id(0), tl.arange(0, BLOCK), parts * PART
    logits += row.to(tl.int64) * width
    target = tl.load(targets + row)
    chosen = tl.load(logits + tl.maximum(target, 0)).to(tl.float32)
    most, total, sum_ = -float("inf"), 0.0, 0.0
    for n in range(0, width, BLOCK):
        x = tl.load(logits + n + columns, mask=n + columns < width, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(most, tl.max(x, 0))
        total = total * tl.exp(most - higher) + tl.sum(tl.exp(x - higher), 0)
        sum_ += tl.sum(tl.where(n + columns < width, x, 0.0), 0)
        most = higher
    normalizer = most + tl.log(total)
    loss = normalizer - (1.0 - smoothing) * chosen - smoothing * sum_ / width
    tl.store(losses + row, tl.where(target < 0, 0.0, loss))
    for n in range(0, width, BLOCK):
        x = tl.load(logits + n + columns, mask=n + columns < width, other=0.0).to(tl.float32)
        gradient = tl.exp(x - normalizer) - smoothing / width - tl.where(n + columns == target, 1.0 - smoothing, 0.0)
        tl.store(logits + n + columns, tl.where(target < 0, 0.0, gradient), mask=n + columns < width)


def smoothed(logits: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    """Losses (N,) of logits (N, V), which are left with their gradients."""
    losses = logits.new_empty(len(logits), dtype=torch.float32)
    if len(logits):
        part = math.gcd(logits.shape[1], 8)  # not told how rows are aligned, Triton reads their numbers one by one
        parts = logits.shape[1] // part
        _smoothed[(len(logits),)](logits, targets.contiguous(), losses, parts, smoothing, part, 8192, num_warps=16)
    return losses
