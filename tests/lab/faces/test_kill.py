"""`pate faces` that is interrupted or terminated ends in one line."""

from pathlib import Path

import pytest

from tests.networks.stages.test_kill import ENDS
from tests.processes import Start


@pytest.mark.parametrize("how", ENDS)
def test_a_light_command_ends_in_one_line(how: str, tmp_path: Path, start: Start) -> None:
    end, code = ENDS[how]
    ended = start("faces", "--output", str(tmp_path / "faces"), "--num", "20000", fresh=True)
    assert ended.wait_for(tmp_path, "faces/img_align_celeba")
    end(ended)
    assert ended.wait() == code, ended.err
    assert ended.err.endswith(f"pate faces: {how}; the same command resumes from here\n")
    assert "Traceback" not in ended.err
