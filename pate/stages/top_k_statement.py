"""The statement of a top k as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pate.accounting.conditions import FIXED_BEFOREHAND, keeping
from pate.accounting.figures import epsilon_text, exact_text


def described(statement: Mapping[str, Any]) -> str:
    """Return the statement of a top k as readable text."""
    lines = [] if statement["private"] else ["NOT PRIVATE: the noise of at least one release has a fixed seed.", ""]
    mechanism, releases = statement["mechanism"], statement["ledger"]["releases"]
    parameters = ", ".join(f"{name}={value}" for name, value in mechanism.items() if name != "class")
    form = "in order" if statement["ordered"] else "as a set"
    of = "the items that users have," if statement["num_items"] is None else f"{statement['num_items']:,} items"
    short = "kbar" in mechanism  # a limited domain
    lines += [f"The top {mechanism['k']} of {of} {form}{', or fewer' * short}, by"]
    lines += [f"    {mechanism['class']}({parameters})."]
    first = statement["neighbors"]
    for _, found in sorted(statement["guarantees"].items(), key=lambda each: each[0] != first):
        epsilon, delta = epsilon_text(found["this_release"]["epsilon"], 4), exact_text(found["this_release"]["delta"])
        lines.append(f"epsilon = {epsilon} at delta = {delta} where {found['neighbors']}.")
        if releases > 1:
            together = epsilon_text(found["all_releases"]["epsilon"], 4)
            lines.append(f"    All {releases} releases of the ledger together: epsilon = {together}.")
    if releases > 1:
        lines.append(f"What all of them cost together holds if {FIXED_BEFOREHAND}.")
    if statement["max_epsilon"] is not None:
        limit, kept = exact_text(statement["max_epsilon"]), keeping(statement["ledger"]["declared_after"])
        lines.append(f"The budget of the ledger is epsilon = {limit} for all releases: {kept}")
    gap = statement["gap"]
    lines.append(
        f"Where the k-th count is {gap['counts']:.4g} ahead of the next one, these are the true top {mechanism['k']}"
        f" with probability {gap['probability']:g} or more."
    )
    if short:
        lines.append("The list ends where a noisy threshold comes first: its length is paid for as its items are.")
    if statement["num_items"] is None:
        lines.append(
            "The list of all items is private: nothing is told of it but the items that are named, and items that one"
            f" user alone has are among them with probability {exact_text(mechanism['delta'])} at most."
        )
    else:
        lines.append("The list of all items is taken to be public: it must not follow from who the users are.")
    return "\n".join(lines) + "\n"
