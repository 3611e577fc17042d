"""What an aggregator lacks is read by the parser of its command, and given to it."""

import pytest

from pate import cli
from pate.commands.label import label_parser
from pate.commands.unscaled import completed


def test_what_is_missing_is_read_as_none() -> None:
    parser = label_parser()
    words = ["--aggregator", "StableTopK", "--aggregator.delta_test", "1e-9"]
    options = parser.read(words)
    settings = options.aggregator.init_args
    assert (settings.scale_gap, settings.sigma_test, settings.delta_test) == (None, None, 1e-9)
    assert options.delta is None and options.target_epsilon is None
    with pytest.raises(SystemExit):  # to be read is not to be accepted
        parser.parse_args(words)


def test_noise_of_one_comes_before_all_other_words() -> None:
    parser = label_parser()
    words = ["--aggregator=NoisyVotes", "--aggregator.soft=false", "--target_epsilon=2", "--delta=1e-5", "--run=x"]
    (before,) = completed(parser.read(words))
    settings = parser.parse_args([before, *words]).aggregator.init_args
    assert (settings.sigma_votes, settings.soft) == (1.0, False)
    # all that is given stays as it is
    assert completed(parser.read([*words, "--aggregator.sigma_votes=7"])) == []


@pytest.mark.parametrize("word", ["--target_epsilon=two", "--aggregator=StableTopk"])
def test_a_wrong_value_is_refused_while_it_is_read(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["label", word, "--delta=1e-5", "--run=x"])
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("pate label: ") and word.partition("=")[2] in error
