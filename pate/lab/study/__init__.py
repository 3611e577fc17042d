"""What a release would cost, and how mechanisms compare at one price."""

from pate._labeling.commands.table import Command

COMMANDS = {
    "account": Command(
        "pate.lab.study.account:account_main",
        "compute the cost of queries, or the noise for a target, from parameters",
        "pate account --aggregator StableTopK --aggregator.scale_gap 39 "
        "--aggregator.sigma_test 60 --aggregator.delta_test 1e-9 --num_queries 600 "
        "--delta 1e-6 --num_teachers 800 --num_labels 20",
    ),
    "study": Command(
        "pate.lab.study.output:study_main",
        "compare mechanisms at one price over k, epsilons, votes and seeds",
        "pate study --mechanisms [Peeling,Canonical] --k [3,5] --epsilons [1,4] --counts"
        " [films.npy]",
    ),
}
