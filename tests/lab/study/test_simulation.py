"""Simulated teachers are as good as asked."""

import pytest

from pate.lab.study.sources import Simulation, simulated


@pytest.mark.parametrize("accuracy", [0.6, 0.95])
def test_simulated_teachers_are_as_good_as_asked(accuracy: float) -> None:
    def drawn(num_teachers: int, right: float) -> Simulation:
        return Simulation(
            num_labels=8, num_teachers=num_teachers, num_public=3000, teacher_accuracy=right, seed=3
        )

    votes = simulated(drawn(40, accuracy))
    # the truth of a public sample, from teachers who see it
    truth = simulated(drawn(2, 0.99999)).counts > 1
    assert (votes.ballots == truth[:, None]).mean() == pytest.approx(accuracy, abs=0.02)
    assert truth.mean() == pytest.approx(0.2, abs=0.03)
