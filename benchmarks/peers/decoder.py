"""Translates with one system in several settings, over and over: seconds of each call, its words, the memory it held.

A job (JSON on standard input): `system`, `precision`, `bundle`, `directory` and `tokens` (of a model written for a
peer, with one vocabulary), `shortlist` (whether the bundle's is used), `alpha`, `extra` (tokens beyond the source's),
`threads` and `workers` (that share them), `turns`, and `settings`, each with `batch`, `beam`, `sources` (lists of ids),
`single` (a call for each sentence), `fixed` (0, or the tokens that every translation is made to have) and `begins` (0,
or with how many tokens of `targets` each translation must begin).

It runs in the peers' environments too, so it imports nothing but the system that it is asked for.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import memory

PAD, BEGIN, END = 0, 2, 3

Job = dict[str, Any]
Translate = Callable[[list[list[int]], Job], list[list[int]]]
"""Sources and a setting -> ids of the translations, their ends left out."""


def regard(job: Job) -> Translate:
    """By the threads of OMP_NUM_THREADS; without PyTorch where the compiled decoder has the search inside of it."""
    from regard.search.table import SearchConfig
    from regard.tasks.translate import load

    translator = load(job["bundle"], device="cpu")

    def translate(sources: list[list[int]], setting: Job) -> list[list[int]]:
        search = SearchConfig(
            beam=setting["beam"],
            penalty="power",
            alpha=job["alpha"],
            stop="beam",  # CTranslate2's rule
            extra_length=job["extra"],
            min_length=setting["fixed"],
            max_length=setting["fixed"],
            batch_size=setting["batch"],
            precision=job["precision"],
            shortlist=job["shortlist"],
        )
        backend = translator.backend(search)  # once compiled, the model itself is put aside
        found = backend.found(sources, search, shortlist=translator.shortlist(search))
        return [hypotheses[0].ids for hypotheses in found]

    return translate


def ctranslate2(job: Job) -> Translate:
    import ctranslate2

    translator = ctranslate2.Translator(
        job["directory"],
        device="cpu",
        compute_type=job["precision"],
        inter_threads=job["workers"],
        intra_threads=job["threads"] // job["workers"],
    )
    tokens, ids = job["tokens"], {token: number for number, token in enumerate(job["tokens"])}

    def translate(sources: list[list[int]], setting: Job) -> list[list[int]]:
        begins = setting["begins"]
        found = translator.translate_batch(
            [[tokens[i] for i in source] for source in sources],
            [[tokens[i] for i in target[:begins]] for target in setting["targets"]] if begins else None,
            beam_size=setting["beam"],
            length_penalty=job["alpha"],
            max_batch_size=setting["batch"],
            max_input_length=0,
            min_decoding_length=setting["fixed"],
            max_decoding_length=setting["fixed"] or max(map(len, sources)) + job["extra"],
            return_end_token=True,  # so that a length counts the end
            use_vmap=job["shortlist"],
        )
        return [_before_end([ids[token] for token in one.hypotheses[0]]) for one in found]

    return translate


def marian(job: Job) -> Translate:
    """Each sentence as long as its batch's longest source, its end counted; see `marian_files.py`."""
    import _pymarian

    tokens, ids = job["tokens"], {token: number for number, token in enumerate(job["tokens"])}
    model, vocabulary = f"{job['directory']}/model.npz", f"{job['directory']}/vocabulary.yml"
    if job["precision"] != "float32":
        made = f"{job['directory']}/{job['precision']}.bin"
        if not os.path.exists(made):
            _quietly(lambda: _pymarian.main(["convert", "-f", model, "-t", made, "--gemm-type", job["precision"]]))
        model = made
    opened: dict[tuple[int, int], Any] = {}

    def translate(sources: list[list[int]], setting: Job) -> list[list[int]]:
        key = setting["beam"], setting["batch"]
        if key not in opened:
            opened.clear()
            quiet = "--quiet --quiet-translation" + (" --skip-cost" if setting["beam"] == 1 else "")
            opened[key] = _pymarian.Translator(
                f"--models {model} --vocabs {vocabulary} {vocabulary} --beam-size {setting['beam']} --normalize "
                f"{job['alpha']} --mini-batch {setting['batch']} --maxi-batch 1000 --maxi-batch-sort src "
                f"--workspace 256 --cpu-threads {job['threads']} --max-length-factor 1 {quiet}"
            )
        found = opened[key].translate([" ".join(tokens[i] for i in source) for source in sources])
        return [
            [ids.get(token, PAD) for token in line.split(" ")][:-1] for line in found
        ]  # the last stands for the end

    return translate


def _quietly(act: Callable[[], Any]) -> None:
    """What is said on standard output goes to standard error, for the last line of the first is the result."""
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        act()
    finally:
        os.dup2(kept, 1)


def huggingface(job: Job) -> Translate:
    import torch

    torch.set_num_threads(job["threads"])
    model = _marian_or_pegasus(job["bundle"]).to(getattr(torch, job["precision"])).eval()

    def translate(sources: list[list[int]], setting: Job) -> list[list[int]]:
        found: list[list[int]] = [[]] * len(sources)
        order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
        for start in range(0, len(order), setting["batch"]):
            some = order[start : start + setting["batch"]]
            rows = [[*sources[i], END] for i in some]
            longest = max(map(len, rows))
            ids = torch.tensor([row + [PAD] * (longest - len(row)) for row in rows])
            beam = {"length_penalty": job["alpha"], "early_stopping": True} if setting["beam"] > 1 else {}
            with torch.inference_mode():
                made = model.generate(
                    input_ids=ids,
                    attention_mask=(ids != PAD).long(),
                    num_beams=setting["beam"],
                    do_sample=False,
                    max_new_tokens=setting["fixed"] or longest - 1 + job["extra"],
                    min_new_tokens=setting["fixed"] or None,
                    **beam,
                )
            for i, row in zip(some, made.tolist(), strict=True):
                found[i] = [number for number in _before_end(row[1:]) if number != PAD]
        return found

    return translate


def _marian_or_pegasus(path: str) -> Any:
    """The bundle as Hugging Face's Marian, or, where its norms come first, as Pegasus, which is otherwise the same.

    Positions are those of the bundle, written into their tables, so features keep their order.
    """
    import torch
    from transformers import MarianConfig, MarianMTModel, PegasusConfig, PegasusForConditionalGeneration

    from regard.bundle import load
    from regard.exchange.huggingface import layer_names

    bundle = load(path)
    config = bundle.recipe.model
    settings = {
        **{"encoder_layers": config.encoder_layers, "decoder_layers": config.decoder_layers},
        **{f"{side}_attention_heads": config.heads for side in ("encoder", "decoder")},
        **{f"{side}_ffn_dim": config.feedforward for side in ("encoder", "decoder")},
        "vocab_size": len(bundle.source),
        "d_model": config.width,
        "activation_function": config.activation,
        "scale_embedding": True,
        "forced_eos_token_id": None,
        **dict(zip(("pad_token_id", "eos_token_id", "decoder_start_token_id"), (PAD, END, BEGIN), strict=True)),
    }
    made: Any = (
        PegasusForConditionalGeneration(PegasusConfig(**settings))
        if config.norm == "pre"
        else MarianMTModel(MarianConfig(**settings))
    )
    ours: Any = bundle.model().requires_grad_(False)
    count = made.config.max_position_embeddings
    places = ours.source.positions(torch.arange(count), count)
    weights = {f"model.{side}.embed_positions.weight": places for side in ("encoder", "decoder")}
    for name, tensor in ours.named_parameters():
        side, _, rest = name.partition("_norm.")
        if name == "source.table.weight":
            weights["model.shared.weight"] = tensor
        elif side in ("encoder", "decoder") and rest:
            weights[f"model.{side}.layer_norm.{rest}"] = tensor
        elif name.startswith(("encoder.", "decoder.")):
            theirs = layer_names(name)
            weights.update(zip(theirs, tensor.chunk(len(theirs)), strict=True))
    unknown = made.load_state_dict(weights, strict=False).unexpected_keys
    if unknown:
        raise ValueError(f"Hugging Face's model has no {unknown[0]}")
    made.tie_weights()
    return made


def _before_end(ids: list[int]) -> list[int]:
    return ids[: ids.index(END)] if END in ids else ids


def baseline(job: Job) -> Translate:
    import regard.tasks.translate  # noqa: F401

    return lambda sources, setting: [[] for _ in sources]


SYSTEMS = {
    "regard": regard,
    "ctranslate2": ctranslate2,
    "marian": marian,
    "huggingface": huggingface,
    "baseline": baseline,
}


def main() -> None:
    job = json.loads(sys.stdin.read())
    translate = SYSTEMS[job["system"]](job)
    results = []
    for setting in job["settings"]:
        setting = {"single": False, "fixed": 0, "begins": 0, **setting}
        sources = setting["sources"]
        calls = [[source] for source in sources] if setting["single"] else [sources]
        first = sources[: setting["batch"]]
        # Memory and threads are there before the clock starts.
        translate(first, {**setting, "targets": setting.get("targets", [])[: len(first)]})
        turns, said = [], []
        for _ in range(job["turns"]):
            said, seconds = [], []
            for some in calls:
                began = time.perf_counter()
                said += translate(some, setting)
                seconds.append(time.perf_counter() - began)
            turns.append(seconds)
        results.append({"seconds": turns, "ids": said})
    print("\n" + json.dumps({"results": results, "peak_bytes": memory.most(), "threads": job["threads"]}))


if __name__ == "__main__":
    main()
