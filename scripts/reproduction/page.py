"""The page of all findings, which no hand writes."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence

from scripts.reproduction.findings import Claim, Kept, Verdict

FORMS = ("quick", "full")
COMMAND = "python -m scripts.reproduction"
CLAIMS = "claims.csv"
"""The table of all claims, in the folder of the findings."""

_HEAD = """# Papers reproduced

Tables, figures and statements of the papers that this package builds on or compares with, made again by `make
reproduce`, which also writes this page: no number under "here" is typed by hand.

{counts} They are all in [{claims}]({folder}/{claims}); here are the chief ones, each with a link to a page on the
method, all claims with their reasons, and the picture.
"""

_READING = """\
A claim is **reproduced**; **reproduced with a difference**, because the size is another, a claim about certain data
was tried on others, a setting that the paper leaves open is ours, or a misprint has to be read as intended;
**refuted**; or **not testable here**. The verdict follows from the reason, which the tables name. A claim is refuted
only if it fails in the paper's own setting, as printed, and as meant if the two differ. The table then quotes the
paper, and the tests have a second computation of another kind. Every epsilon names its neighboring relation; epsilons
of a paper are under the relation and the theorem that the paper states.

The same seeds give the same numbers, but for times, at the commit and the versions that each file names. Other commits
may draw otherwise: each file states how far the numbers of another seed are, and a run at night compares.
"""

_SOURCES = """## Where the data come from

`PATE_DATA` names a folder with the files below, which are not part of this project; a section without its file
is left as it was, or is **not testable here** until it is. Files of counts are arrays of numpy.

| file | content | source |
| --- | --- | --- |
{rows}

The six datasets of Gillenwater et al. (2022) are, by their list of references, Books at
[kaggle.com/jealousleopard/goodreadsbooks](https://www.kaggle.com/jealousleopard/goodreadsbooks), Games at
[kaggle.com/tamber/steam-video-games](https://www.kaggle.com/tamber/steam-video-games/data), Foods at
[jmcauley.ucsd.edu/data/amazon](https://jmcauley.ucsd.edu/data/amazon/) (Grocery and Gourmet Food), Movies in
MovieLens (Harper & Konstan (2015)), News of Fernandes, Vinagre & Cortez (2015) and Tweets at
[doi.org/10.7910/DVN/JBXKFD](https://doi.org/10.7910/DVN/JBXKFD). No open repository was found with copies of the last
four; BOOKS and GAMES are other copies of the first two.
"""

_FILES = (
    (
        "topk/NETFLIX.n17770.npy",
        "Netflix Prize: for each of 17,770 films, how many users gave it five stars",
        "[shekelyan/dptopk](https://github.com/shekelyan/dptopk), the code of Shekelyan & Loukides (2022)",
    ),
    (
        "topk/ZIPFIAN.n10000.npy",
        "10,000 scores by Zipf's law with exponent 0.04 and sum 15^7",
        "the same",
    ),
    (
        "topk/{HEPTH,INCOME,MEDCOST,PATENT,SEARCHLOGS}.n4096.npy",
        "five histograms of 4,096 bins, which McKenna & Sheldon (2020) use too",
        "the same",
    ),
    (
        "topk/BOOKS_goodreads_ratings_count.npy",
        "ratings of 13,719 Goodreads books: another release of the set of Gillenwater et al. (2022), of 11,000+",
        "[AndiraGita/goodreads-recommendation](https://github.com/AndiraGita/goodreads-recommendation)",
    ),
    (
        "topk/GAMES_steam_play_users.npy",
        "users who play each of 3,600 Steam games, where Gillenwater et al. (2022) count purchases of 5,000+",
        "[MowahhidShakeel/GameRecommendationSystem](https://github.com/MowahhidShakeel/GameRecommendationSystem)",
    ),
    (
        "topk/US_COVID19_STATES.npz",
        "new cases of Covid-19 by day and state, by The New York Times, as of March 2021",
        "[CoronaPolicy/prediction_model](https://github.com/CoronaPolicy/prediction_model)",
    ),
    (
        "multilabel/celeba_attributes.npz",
        "CelebA (CUHK MMLab): 40 attributes, partition and identities, without the pictures; not to be passed on",
        "[SalmanAlsubaihi/Eyeglasses-Detection-Exercise]"
        "(https://github.com/SalmanAlsubaihi/Eyeglasses-Detection-Exercise),"
        " [Golbstein/keras-face-recognition](https://github.com/Golbstein/keras-face-recognition)",
    ),
)


def page(findings: Sequence[Kept], folder: str, missing: Mapping[str, str] | None = None) -> str:
    """Return the page in Markdown.

    Args:
        findings: sorted by paper.
        folder: the folder of their files, relative to the page.
        missing: findings that were never made, by name, and the file that each of them needs.
    """
    verdicts = Counter(claim.verdict for finding in findings for claim in finding.claims)
    numbers = ", ".join(
        f"{verdicts[verdict]} {verdict}" for verdict in Verdict if verdicts[verdict]
    )
    counts = f"Verdicts on all claims: {numbers}." if numbers else "Nothing is made yet."
    parts = [
        _HEAD.format(counts=counts, claims=CLAIMS, folder=folder),
        _headlines(findings, folder, missing or {}),
        _READING,
    ]
    sources = "\n".join(f"| `{file}` | {what} | {source} |" for file, what, source in _FILES)
    return "\n".join([*parts, _SOURCES.format(rows=sources), "## Runs\n", _runs(findings, folder)])


def claims_table(findings: Sequence[Kept]) -> str:
    """Return all claims as CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("paper", "finding", "where", "published", "here", "verdict", "reason", "why"))
    for finding in findings:
        for claim in finding.claims:
            writer.writerow(
                (finding.paper, finding.name, *_words(claim), str(claim.reason), claim.why)
            )
    return text.getvalue()


def _words(claim: Claim) -> tuple[str, str, str, str]:
    return claim.where, claim.published, claim.ours, str(claim.verdict)


def _headlines(findings: Sequence[Kept], folder: str, missing: Mapping[str, str]) -> str:
    lines = ["| claim | published | here | verdict |", "| --- | --- | --- | --- |"]
    for finding in findings:
        authors = _authors(finding.paper)
        for claim in finding.claims:
            if claim.headline:
                where, *words, verdict = _words(claim)
                lines.append(
                    f"| {authors}: [{where}]({folder}/{finding.name}.md) | {' | '.join(words)} | **{verdict}** |"
                )
    for name, file in missing.items():
        lines.append(f"| `{name}` | | | **{Verdict.UNTESTABLE}**: needs `{file}` |")
    return "\n".join(lines) + "\n"


def _authors(paper: str) -> str:
    """Return the authors and the year of a paper in short: one or two names, or the first of more."""
    names, _, year = paper.partition(")")[0].partition(" (")
    first, *others = names.replace(" & ", ", ").split(", ")
    return f"{names if len(others) < 2 else f'{first} et al.'} ({year})"


def _runs(findings: Sequence[Kept], folder: str) -> str:
    lines = [
        "| page | paper | run | processor seconds, quick | full |",
        "| --- | --- | --- | ---: | ---: |",
    ]
    for finding in findings:
        times = [
            f"{finding.seconds[form]:.0f}" if form in finding.seconds else "not run"
            for form in FORMS
        ]
        lines.append(
            f"| [{finding.name}]({folder}/{finding.name}.md) | {_authors(finding.paper)} | {finding.ran} | {' | '.join(times)} |"
        )
    return "\n".join(lines) + "\n"


def section(finding: Kept) -> str:
    """Return the page of one finding, beside its files."""
    lines = [f"# {finding.title}", "", f"{finding.paper}.", "", finding.method.strip(), ""]
    if finding.caption:
        lines += [f"![{finding.caption}]({finding.name}.png)", "", f"*{finding.caption}*", ""]
    lines += ["| where | published | here | verdict | why |", "| --- | --- | --- | --- | --- |"]
    for claim in finding.claims:
        *words, verdict = _words(claim)
        reason = f": {claim.reason}" if claim.verdict is Verdict.DIFFERENT else ""
        lines.append(f"| {' | '.join(words)} | **{verdict}**{reason} | {claim.why} |")
    shown = f"{FORMS[finding.full]} form, seed {finding.seed}, {finding.ran}"
    lines += [
        "",
        f"Numbers: [{finding.name}.csv]({finding.name}.csv); {shown}. Again: `{COMMAND} {finding.name}`, with `--full` as in the paper.",
    ]
    return "\n".join(lines) + "\n"
