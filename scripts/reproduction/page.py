"""The page of all findings, which no hand writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby

from scripts.reproduction.findings import Kept, Verdict

FORMS = ("quick", "full")
COMMAND = "python -m scripts.reproduction"

_HEAD = """# Papers, made again

Tables and figures of the papers that this package builds on or compares with, made again by `make reproduce`, which
also writes this page: no number under "here" is typed by hand. The same seeds give the same numbers, but for times.

A claim is **reproduced**, **reproduced with a difference**, **refuted**, or **not testable here**. Every epsilon names
its neighboring relation; those of a paper are under the relation and the theorem that the paper states. What is tried
on other data or settings than the paper's is reproduced or refuted on these: the row says which they are.
"""


def page(findings: Sequence[Kept], folder: str) -> str:
    """Return the page in Markdown of at least one finding, sorted by paper, whose files lie in ``folder`` beside it."""
    verdicts = Counter(claim.verdict for each in findings for claim in each.claims)
    parts = [
        _HEAD,
        f"In all: {', '.join(f'{verdicts[verdict]} {verdict}' for verdict in Verdict if verdicts[verdict])}.\n",
        _times(findings),
    ]
    for paper, group in groupby(findings, key=lambda each: each.paper):
        parts.append(f"## {paper}\n")
        parts.extend(_section(each, folder) for each in group)
    return "\n".join(parts)


def _times(findings: Sequence[Kept]) -> str:
    lines = ["| name | shown | seconds, quick | seconds, full | seed |", "| --- | --- | ---: | ---: | ---: |"]
    for each in findings:
        times = [f"{each.seconds[form]:.0f}" if form in each.seconds else "not run" for form in FORMS]
        lines.append(f"| `{each.name}` | {FORMS[each.full]} | {' | '.join(times)} | {each.seed} |")
    sums = [sum(each.seconds.get(form, 0.0) for each in findings) for form in FORMS]
    lines.append(f"| all that were run | | {' | '.join(f'{each:.0f}' for each in sums)} | |")
    return "\n".join(lines) + "\n"


def _section(finding: Kept, folder: str) -> str:
    lines = [f"### {finding.title}", "", finding.method.strip(), ""]
    if finding.caption:
        lines += [f"![{finding.caption}]({folder}/{finding.name}.png)", "", f"*{finding.caption}*", ""]
    lines += ["| where | published | here | verdict | why |", "| --- | --- | --- | --- | --- |"]
    for claim in finding.claims:
        words = (claim.where, claim.published, claim.ours, f"**{claim.verdict}**", claim.why)
        lines.append(f"| {' | '.join(words)} |")
    numbers = f"[{finding.name}.csv]({folder}/{finding.name}.csv)"
    lines += ["", f"Numbers: {numbers}. Again: `{COMMAND} {finding.name}`, with `--full` as in the paper."]
    return "\n".join(lines) + "\n"
