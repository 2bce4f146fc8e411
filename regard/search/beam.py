"""Beam search over any step function; no model in sight.

Sizes: B sentences, K width, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .hypotheses import Hypothesis, S, Step
from .penalties import Penalty

__all__ = ["beam_search"]


def beam_search(
    step: Step[S],
    state: S,
    first: Tensor,
    *,
    width: int,
    max_length: Tensor,
    end: int,
    penalty: Penalty,
    n_best: int = 1,
    shrink: bool = True,
) -> list[list[Hypothesis]]:
    """The best `n_best` finished hypotheses of each sentence, best first.

    `first` (B,) is the piece that every sentence starts from and `state` has a row a sentence. A hypothesis finishes
    with `end`, or is cut at max_length[sentence] pieces, the end counted. Hypotheses are ranked by
    log-probability / penalty(length). A sentence stops early when `n_best` of its finished ones cannot be overtaken by
    any open one, whatever that goes on to (log-probabilities only fall, so an open one is bounded by its own
    over the largest penalty it can reach). Finished sentences leave the batch when `shrink`.
    """
    sentences, device = first.shape[0], first.device
    limits: list[int] = max_length.tolist()
    finished: list[list[Hypothesis]] = [[] for _ in range(sentences)]
    alive = list(range(sentences))  # the sentences still in the batch, in order
    done = [False] * sentences
    tokens = first.repeat_interleave(width)  # (B·K,)
    state = state.select(torch.arange(sentences, device=device).repeat_interleave(width))
    history = torch.empty(sentences, width, 0, dtype=torch.long, device=device)
    # Only one copy of the first row counts, or the beam would hold the same hypothesis K times.
    totals = torch.full((sentences, width), float("-inf"), dtype=torch.float64, device=device)
    totals[:, 0] = 0.0
    length = 0
    while alive and not all(done[s] for s in alive):
        length += 1
        log_probabilities, state = step(tokens, state)  # (B·K, V)
        vocabulary = log_probabilities.shape[-1]
        # Of 2K candidates at most K are ends, so K open ones are always left.
        keep = min(2 * width, width * vocabulary)
        candidates = _top(log_probabilities, totals, keep)  # scores and flat indices (B, 2K)
        scores, flat = candidates
        parents, pieces = flat // vocabulary, flat % vocabulary
        is_end = pieces == end
        scores_list, ends_list, parents_list = scores.tolist(), is_end.tolist(), parents.tolist()
        rows = history.tolist() if bool(is_end.any()) or any(length >= limits[s] for s in alive) else []
        pieces_list = pieces.tolist() if rows else []
        for i, s in enumerate(alive):
            if done[s]:
                continue
            cut = length >= limits[s]
            for j, score in enumerate(scores_list[i]):
                if score == float("-inf") or (j >= width and not cut):
                    break
                if ends_list[i][j] or cut:
                    ids = rows[i][parents_list[i][j]] + ([] if ends_list[i][j] else [pieces_list[i][j]])
                    finished[s].append(Hypothesis(ids, score, score / penalty(length), bool(ends_list[i][j])))
            finished[s].sort(key=lambda h: -h.score)
            del finished[s][max(width, n_best) :]
            open_scores = [x for x, e in zip(scores_list[i], ends_list[i], strict=True) if not e]
            best_open = open_scores[0] if open_scores else float("-inf")
            # Every open hypothesis is bounded by the best one at its most generous penalty.
            bound = best_open / max(penalty(length + 1), penalty(limits[s]))
            done[s] = (
                cut
                or best_open == float("-inf")
                or (len(finished[s]) >= n_best and finished[s][n_best - 1].score >= bound)
            )
        # The K best open candidates go on; a row of which fewer are left carries -inf.
        scores = scores.masked_fill(is_end, float("-inf"))
        totals, order = scores.topk(min(width, keep), dim=1, sorted=True)
        if totals.shape[1] < width:  # a vocabulary smaller than the beam
            short = width - totals.shape[1]
            totals = torch.nn.functional.pad(totals, (0, short), value=float("-inf"))
            order = torch.nn.functional.pad(order, (0, short), value=0)
        parents, pieces = parents.gather(1, order), pieces.gather(1, order)
        history = torch.cat(
            (history.gather(1, parents[..., None].expand(-1, -1, history.shape[2])), pieces[..., None]), dim=2
        )
        staying = [i for i, s in enumerate(alive) if not done[s]]
        select = parents + torch.arange(len(alive), device=device)[:, None] * width  # (B, K) rows of the state
        if shrink and len(staying) < len(alive):
            index = torch.tensor(staying, dtype=torch.long, device=device)
            alive = [alive[i] for i in staying]
            history, totals, pieces, select = (x.index_select(0, index) for x in (history, totals, pieces, select))
        tokens = pieces.flatten()
        if alive:
            state = state.select(select.flatten())
    return [found[:n_best] for found in finished]


def _top(log_probabilities: Tensor, totals: Tensor, keep: int) -> tuple[Tensor, Tensor]:
    """The best `keep` continuations of each sentence: log-probability (B, keep) in float64 and index into (K·V)."""
    sentences, width = totals.shape
    rows, vocabulary = log_probabilities.shape
    # Each row's own best first, so that the wide sort runs on K·keep numbers instead of K·V.
    best, index = log_probabilities.topk(min(keep, vocabulary), dim=-1)  # (B·K, keep)
    summed = (best.double() + totals.flatten()[:, None]).view(sentences, -1)
    flat = (index + torch.arange(rows, device=index.device).remainder(width)[:, None] * vocabulary).view(sentences, -1)
    scores, order = summed.topk(min(keep, summed.shape[1]), dim=1, sorted=True)
    return scores, flat.gather(1, order)
