"""Simulated teachers are as good as asked, and nothing of them is private."""

import pytest

from pate.lab.plan.sources import Simulation, simulated


@pytest.mark.parametrize("accuracy", [0.6, 0.8, 0.95])
def test_simulated_teachers_are_as_good_as_asked(accuracy: float) -> None:
    simulation = Simulation(
        num_labels=8, num_teachers=40, num_public=3000, teacher_accuracy=accuracy, seed=3
    )
    task = simulated(simulation)
    assert task.votes.ballots is not None and not task.private
    # the truth of a public sample, from the noiseless majority of many more teachers
    many = simulated(
        Simulation(num_labels=8, num_teachers=2, num_public=3000, teacher_accuracy=0.99999, seed=3)
    )
    truth = many.votes.counts > 1
    assert (task.votes.ballots == truth[:, None]).mean() == pytest.approx(accuracy, abs=0.02)
    assert task.test_labels.mean() == pytest.approx(0.2, abs=0.03)
