"""Plans before a run: candidates, numbers of teachers, second opinions."""

from pate._labeling.commands.table import Command

COMMANDS = {
    "account": Command(
        "pate.lab.plan.account:account_main",
        "compute the cost of queries, or the noise for a target, from parameters",
        "pate account --aggregator StableTopK --aggregator.scale_gap 39 "
        "--aggregator.sigma_test 60 --aggregator.delta_test 1e-9 --num_queries 600 "
        "--delta 1e-6 --num_teachers 800 --num_labels 20",
    ),
    "plan": Command(
        "pate.lab.plan.command:plan_main",
        "plan the number of teachers from public facts",
        "pate plan --num_records 100000 --num_labels 25 --num_public 5000 --epsilons [1,4]",
    ),
    "frontier": Command(
        "pate.lab.plan.command:frontier_main",
        "draw label and student quality against epsilon for many aggregators",
        "pate frontier --simulate.num_labels 20 --simulate.num_teachers 400 "
        "--simulate.label_density 0.2 --simulate.teacher_accuracy 0.85 --student true",
    ),
    "study": Command(
        "pate.lab.plan.command:study_main",
        "compare mechanisms at one price over k, epsilons, votes and seeds",
        "pate study --mechanisms [Peeling,Canonical] --k [3,5] --epsilons [1,4] --counts"
        " [films.npy]",
    ),
}
