"""`pate completion bash`, in bash."""

import shutil
import subprocess
from pathlib import Path

import pytest

from pate import cli

ASK = """
source "$1"
while IFS= read -r asked; do
    IFS=" " read -r -a COMP_WORDS <<< "$asked"
    [[ $asked == *" " ]] && COMP_WORDS+=("")
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMPREPLY=()
    _shtab_pate
    echo "${COMPREPLY[*]}"
done
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_completes_commands_options_and_values(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert cli.main(["completion", "bash"]) == 0
    script = tmp_path / "pate"
    script.write_text(capsys.readouterr().out)
    asked = {
        "pate l": "label ledger",
        "pate ledger ": "show verify",
        "pate teachers v": "vote",
        "pate label --num": "--num_queries",
        "pate label --aggregator NoisyV": "NoisyVotes",
        "pate run configs/faces --label.num": "--label.num_queries",
        "pate run configs/faces --label.aggregator NoisyV": "NoisyVotes",
        "pate student fit --trainer.max_e": "--trainer.max_epochs",
        "pate plan --by ": "accuracy macro_f1",
        "pate label --run confi": "configs",
        "pate completion b": "bash",
        "pate nothing --": "",
    }
    command = ["bash", "--norc", "-c", ASK, "bash", str(script)]
    done = subprocess.run(command, input="\n".join(asked) + "\n", capture_output=True, text=True)
    assert done.stderr == "" and dict(zip(asked, done.stdout.splitlines(), strict=True)) == asked


def test_other_shells_are_not_offered(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["completion", "cmd"])
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1 and "cmd" in error and "bash" in error
