"""Requests that begin alike: a shared prefix, and chat.  Figures 22 and 23."""

from __future__ import annotations

from prefix_cache.simulate.chat import MEAN_TURNS, Chat
from prefix_cache.simulate.experiment import Experiment, server
from prefix_cache.simulate.figures import paper
from prefix_cache.simulate.figures.figure import Comparison, Figure
from prefix_cache.simulate.figures.latency_plot import latency_plot
from prefix_cache.simulate.lengths import SENTENCES, SHAREGPT
from prefix_cache.simulate.workload import Workload

_NUM_SENTENCES = 1_000
_NUM_TURNS = 800
_WHY_PREFIX = (
    "lengths of translations are assumed, and places are powers of two: with 100 tokens instead "
    "of 50 it is 2.4x and 3.6x; with places no larger than asked for, too, 1.7x and 2.9x"
)
_WHY_CHAT = (
    "paged memory holds 1.8 times the oracle's requests and 2.0 times reserve_max's; were prompts "
    "free to compute and blocks as fast to read as places, it would be 1.6x and 1.7x"
)


def shared_prefix(experiment: Experiment) -> Figure:
    """Translation with an instruction and examples in front of every sentence."""
    on = server("llama-13b", "a100-40g")
    rows, plots, comparisons = [], [], []
    for prefix, told in paper.GAIN_BY_PREFIX.items():
        load = Workload(
            lengths=SENTENCES,
            num_requests=_NUM_SENTENCES,
            seed=experiment.seed,
            shared_prefix=prefix,
        )
        sweeps = {by: experiment.sweep(on, load, by) for by in ("oracle", "paged", "paged_caching")}
        shared = sweeps["paged_caching"].highest
        rows += [
            (prefix, by, found.highest, shared / found.highest, found.at_highest.hit_rate)
            for by, found in sweeps.items()
        ]
        plots.append(
            latency_plot(f"A shared prefix of {prefix} tokens", sweeps, experiment.bound_s)
        )
        comparisons.append(
            Comparison(
                f"{prefix} tokens: shared by oracle",
                shared / sweeps["oracle"].highest,
                told,
                told,
                "x",
                _WHY_PREFIX,
            )
        )
    return Figure(
        "A prefix shared by all requests: translation by LLaMA-13B",
        ("prefix", "allocator", "highest rate", "shared by it", "hit rate"),
        rows,
        plots,
        comparisons,
        [
            "paged_caching keeps what it computed and finds it by its tokens; paged does not, and "
            "shows what paging alone brings.",
            f"Sentences have a mean of {SENTENCES.prompt.mean:g} tokens, translations of "
            f"{SENTENCES.answer.mean:g}: assumed, as the paper does not say.",
        ],
        ["hit rate"],
    )


def chat(experiment: Experiment) -> Figure:
    """Chat, where each prompt is the end of the history."""
    on = server("opt-13b", "a100-40g")
    load = Chat(lengths=SHAREGPT, num_requests=_NUM_TURNS, seed=experiment.seed)
    names = ("reserve_max", "pow2", "oracle", "paged", "paged_caching")
    sweeps = {by: experiment.sweep(on, load, by) for by in names}
    paged = sweeps["paged"].highest
    return Figure(
        "Chat with the history in every prompt, OPT-13B",
        ("allocator", "highest rate", "paged by it", "hit rate"),
        [
            (by, found.highest, paged / found.highest, found.at_highest.hit_rate)
            for by, found in sweeps.items()
        ],
        [latency_plot("Chat", sweeps, experiment.bound_s)],
        [
            Comparison(
                f"paged by {by}",
                paged / sweeps[by].highest,
                paper.GAIN_IN_CHAT,
                paper.GAIN_IN_CHAT,
                "x",
                _WHY_CHAT,
            )
            for by in names[:3]
        ],
        [
            f"Conversations have {MEAN_TURNS} turns on average; prompts are cut to the last 1,024 "
            "tokens, as in the paper, and answers to 1,024.",
            "With such prompts powers of two leave each request 2,048 slots, however well its "
            "answer is guessed.",
            "A prompt that was cut at its front begins with other tokens at each turn, so that "
            "caching finds little; uncut histories are what prefix caching is for.",
        ],
        ["hit rate"],
    )
