"""``prefix-cache replay``: what caching would have saved on traffic that is in a file."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from prefix_cache.cli import INTERRUPTED
from prefix_cache.cli.replay.options import ReplayOptions, opened_source, replay_options

if TYPE_CHECKING:
    from prefix_cache.replay.measure.report import Report
    from prefix_cache.replay.policies.policy_comparison import Comparison


@click.command(
    short_help="Measure what caching would save on your traffic.",
    epilog="\b\nExamples:\n"
    "  prefix-cache replay chats.jsonl.gz --tokenizer tokenizer.json\n"
    "  prefix-cache replay trace.jsonl.gz --blocks 20000 --model llama-3.1-8b --gpu h100\n"
    "  prefix-cache replay trace.jsonl.gz --nodes 8 --blocks 3000 --policy all\n"
    "  prefix-cache replay lengths.csv --assume-turns 5 --html report.html\n"
    "  prefix-cache replay chats.jsonl --router 127.0.0.1:50050 --speed 10",
)
@replay_options
def replay(**arguments: Any) -> None:
    """Replay the requests of a FILE, and say what was cached, what was not, and why.

    FILE is plain or gzip: conversations (OpenAI messages or ShareGPT), logs of sessions with
    usage, Mooncake traces, traces with a hash for each 16 tokens, token ids, logs of vLLM or
    SGLang that hold token ids, or lengths alone.  It is replayed on one cache in this process,
    one request after the other, or against a running node or router at the times of the file.

    With --nodes or --policy it is also served by simulated nodes behind the real router; the one
    cache has as many blocks as all of them (of the first fleet, if there are several).  A node
    prefills first come, first served, what it does not hold, then answers at 20 ms a token.
    Beside the router's policies stand those of other routers, and two that know more than a
    router can (exact_...).

    Ctrl-C ends it, and what was found so far is printed.
    """
    options = ReplayOptions(**arguments)
    if options.sample:
        from prefix_cache.cli.replay.sample import sample

        sample(options)
        return
    from prefix_cache.cli.replay.fleets import compared, named_policies
    from prefix_cache.cli.replay.page import open_page, write_page
    from prefix_cache.cli.replay.policies import print_comparison
    from prefix_cache.cli.replay.run import measured
    from prefix_cache.cli.replay.table import print_report, print_warnings

    policies = named_policies(options)
    page = open_page(options.file.name) if options.file and options.html else None
    source = opened_source(options) if options.file else None
    report = measured(source, options) if source else None
    ended_by = report.ended_by if report else None
    simulates = options.simulates and not ended_by
    comparisons = compared(source, policies, options) if simulates else []
    if any(each.is_partial for each in comparisons):
        ended_by = KeyboardInterrupt()
    if options.as_json:
        answer = _as_json(report, comparisons)
        click.echo(json.dumps({**answer, "partial": ended_by is not None}))
    else:
        if report:
            print_report(report)
        for place, comparison in enumerate(comparisons):
            if place:
                click.echo()
            print_comparison(comparison)
    if report:
        print_warnings(report)
    if comparisons and ended_by:
        click.echo("warning: not all policies were simulated, Ctrl-C ended it", err=True)
    if report and page and options.html:
        write_page(page, report, comparisons, options.html)
    if ended_by:
        sys.exit(INTERRUPTED if isinstance(ended_by, KeyboardInterrupt) else 1)


def _as_json(report: Report | None, comparisons: list[Comparison]) -> dict[str, Any]:
    """Everything in one object: of several fleets, the first one's figures stand in front."""
    answer = report.as_json() if report else {}
    fleets = [comparison.as_json() for comparison in comparisons]
    return answer | (fleets[0] if fleets else {}) | {"fleets": fleets}
