"""What a scrape brought, and what docs/metrics.md says that it brings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

_DOCUMENT = Path(__file__).parents[1] / "docs" / "metrics.md"

Described = set[tuple[str, str, frozenset[str]]]
"""Name, type and labels of each metric."""


def documented(heading: str) -> Described:
    """What the rows under a heading say, up to the next of its kind."""
    _, _, section = _DOCUMENT.read_text().partition(f"# {heading}\n")
    section, _, _ = section.partition("\n# ")
    rows = re.findall(r"^\| `(\w+)(?:\{(.*)\})?` \| (\w+) \|", section, re.MULTILINE)
    assert rows
    return {
        (name, kind, frozenset(labels.split(",") if labels else ())) for name, labels, kind in rows
    }


def described(text: str) -> Described:
    """What a scrape served."""
    served = set()
    for kind, sample in samples(text):
        name, labels = sample.name, set(sample.labels)
        if kind == "histogram":
            name, labels = re.sub("_(bucket|count|sum)$", "", name), labels - {"le"}
        if name.endswith("_info"):
            kind = "info"
        if not name.endswith("_created"):
            served.add((name, kind, frozenset(labels)))
    return served


def samples(text: str) -> Iterator[tuple[str, Sample]]:
    """Every sample with the type of its family."""
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            yield family.type, sample


def values(text: str) -> dict[str, float]:
    """Values by name and labels, as in ``prefix_cache_blocks{state=free}``."""
    found = {}
    for _, sample in samples(text):
        labels = ",".join(f"{name}={value}" for name, value in sample.labels.items())
        found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found
