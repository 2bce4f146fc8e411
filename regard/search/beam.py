"""Beam search over any step function; no model in sight.

Sizes: B sentences, K width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Generator

import torch
from torch import Tensor

from .candidates import Beams, Choose, best
from .hypotheses import Bonus, Hypothesis, S, Step, run_through
from .penalties import Penalty

__all__ = ["beam_search", "beam_steps"]


def beam_steps(
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
    stop: str = "bound",
    bonus: Bonus[S] | None = None,
    choose: Choose[S] | None = None,
) -> Generator[Beams, None, list[list[Hypothesis]]]:
    """The best `n_best` finished hypotheses of each sentence, best first.

    `first` (B,) is the token that every sentence starts from and `state` has a row a sentence. A hypothesis finishes
    with `end`, or is cut at max_length[sentence] tokens, the end counted. Hypotheses are ranked by
    log-probability / penalty(length), plus `bonus` of the state that finished them, which is at most 0.

    When a sentence stops is named by `stop`. "bound": when `n_best` of its finished ones cannot be overtaken by any
    open one, whatever that goes on to (log-probabilities only fall, so an open one is bounded by its own over the
    largest penalty it can reach). "first": when `n_best` have finished. "beam": when `width` have, as other libraries'
    beams do. "full": at the length limit.
    Finished sentences leave the batch when `shrink`. `choose` replaces `best`. A sentence of which no hypothesis is
    possible gets none.

    Stops after every step to show where it stands; what it returns is what `beam_search` does.
    """
    choose = choose or best
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
        scores, flat = choose(log_probabilities, totals, keep, state)  # totals and indices (B, 2K)
        parents, chosen = flat // vocabulary, flat % vocabulary
        is_end = chosen == end
        scores_list, ends_list, parents_list = scores.tolist(), is_end.tolist(), parents.tolist()
        rows = history.tolist() if bool(is_end.any()) or any(length >= limits[s] for s in alive) else []
        chosen_list = chosen.tolist() if rows else []
        extra = bonus(state).view(-1, width).tolist() if bonus and rows else None  # (B, K)
        for i, s in enumerate(alive):
            if done[s]:
                continue
            cut = length >= limits[s]
            for j, score in enumerate(scores_list[i]):
                if score == float("-inf") or (j >= width and not cut):
                    break
                if ends_list[i][j] or cut:
                    ids = rows[i][parents_list[i][j]] + ([] if ends_list[i][j] else [chosen_list[i][j]])
                    rank = score / penalty(length) + (extra[i][parents_list[i][j]] if extra else 0.0)
                    finished[s].append(Hypothesis(ids, score, rank, bool(ends_list[i][j])))
            finished[s].sort(key=lambda h: -h.score)
            del finished[s][max(width, n_best) :]
            open_scores = [x for x, e in zip(scores_list[i], ends_list[i], strict=True) if not e]
            best_open = max(open_scores, default=float("-inf"))
            # Every open hypothesis is bounded by the best one at its most generous penalty.
            bound = best_open / max(penalty(length + 1), penalty(limits[s])) if stop == "bound" else float("-inf")
            needed = max(width, n_best) if stop == "beam" else n_best
            enough = stop != "full" and len(finished[s]) >= needed and finished[s][needed - 1].score >= bound
            done[s] = cut or best_open == float("-inf") or enough
        # The first K open candidates go on; a row of which fewer are left carries -inf.
        order = is_end.long().argsort(dim=1, stable=True)[:, :width]
        totals = scores.masked_fill(is_end, float("-inf")).gather(1, order)
        if totals.shape[1] < width:  # a vocabulary smaller than the beam
            short = width - totals.shape[1]
            totals = torch.nn.functional.pad(totals, (0, short), value=float("-inf"))
            order = torch.nn.functional.pad(order, (0, short), value=0)
        parents, chosen = parents.gather(1, order), chosen.gather(1, order)
        history = torch.cat(
            (history.gather(1, parents[..., None].expand(-1, -1, history.shape[2])), chosen[..., None]), dim=2
        )
        yield Beams(history, totals, finished)
        staying = [i for i, s in enumerate(alive) if not done[s]]
        select = parents + torch.arange(len(alive), device=device)[:, None] * width  # (B, K) rows of the state
        if shrink and len(staying) < len(alive):
            index = torch.tensor(staying, dtype=torch.long, device=device)
            alive = [alive[i] for i in staying]
            history, totals, chosen, select = (x.index_select(0, index) for x in (history, totals, chosen, select))
        tokens = chosen.flatten()
        if alive:
            state = state.select(select.flatten())
    return [found[:n_best] for found in finished]


beam_search = run_through(beam_steps)
"""`beam_steps` without the stops: its hypotheses."""
