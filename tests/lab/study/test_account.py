"""`pate account` prints what the accountant says, and the noise that meets a target."""

import pytest
import yaml

from pate import VoteShape, cli
from pate._core.settings import decode
from pate.accounting import RDPAccountant
from pate.aggregators import Aggregator

SHAPE = VoteShape(200, 4)
ASKED = ["--delta=1e-6", "--num_queries=20", "--num_teachers=200", "--num_labels=4"]
Printed = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("words", "relation"),
    [
        ("NoisyVotes", "REPLACE_RECORD"),
        ("Rounds", "ADD_REMOVE_TEACHER"),
        pytest.param("Peeling --aggregator.k=2", "ADD_REMOVE_TEACHER", marks=pytest.mark.slow),
        ("Canonical --aggregator.k=2 --aggregator.scale_canonical=7", "REPLACE_RECORD"),
        pytest.param(
            "StableTopK --aggregator.delta_test=1e-9", "REPLACE_RECORD", marks=pytest.mark.slow
        ),
    ],
)
def test_what_is_printed_for_a_target_meets_it(words: str, relation: str, capsys: Printed) -> None:
    """What is pasted into label.yaml costs what was asked."""
    asked = ["account", "--aggregator", *words.split(), "--target_epsilon=2", *ASKED]
    assert cli.main([*asked, f"--aggregator.neighboring_relation={relation}"]) == 0
    content = yaml.safe_load(capsys.readouterr().out.split("# label.yaml\n")[1])
    assert content.keys() == {"aggregator", "num_queries", "delta"}
    aggregator = decode(Aggregator, content["aggregator"])
    assert type(aggregator).__name__ == words.split()[0]
    assert aggregator.neighboring_relation.name == relation
    account = RDPAccountant(relation=aggregator.neighboring_relation, in_order=True)  # as is stated
    account.compose(aggregator.event(SHAPE), 20)
    assert 1.9999 < account.get_epsilon(delta=1e-6) <= 2.0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("NoisyVotes", "Expected --aggregator.sigma_votes of NoisyVotes"),
        ("Peeling --target_epsilon=2", "Expected k (--aggregator.k) of Peeling, which no target"),
        ("Peeling --aggregator.k=9 --target_epsilon=2", "Expected k <= 4 for 4 items, got k=9"),
        ("StableTopK --aggregator.scale_gap=3 --target_epsilon=2", "all noise of StableTopK or no"),
        ("NoisyVotes --target_epsilon=2 --delta=0.001 --num_teachers=2000", "delta < 1 / 2000"),
        ("Peelings --target_epsilon=2", "did you mean Peeling?"),
    ],
)
def test_what_cannot_be_priced_is_one_line(words: str, message: str, capsys: Printed) -> None:
    name, *options = words.split()
    try:
        code: object = cli.main(["account", "--aggregator", name, *ASKED, *options])
    except SystemExit as stopped:
        code = stopped.code
    assert code == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
