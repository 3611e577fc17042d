"""Embeddings of texts: by a stand-in everywhere, by a tiny real model, and by real weights."""

import json
import stat
import sys
import types
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest

from pate.data import Role, SentenceFeatures, TextTable

TEXTS = ["It is broken", "Thank you", "", "broken, again!"]


class StandIn:
    """Embeds a text by its numbers of letters; the bias is its weight."""

    calls = 0

    def __init__(self, folder: str, **options: Any) -> None:
        assert options["trust_remote_code"] is False and options["local_files_only"] is True
        self.bias = json.loads((Path(folder) / "config.json").read_text())["bias"]

    def encode(self, texts: list[str], *, batch_size: int, show_progress_bar: bool) -> np.ndarray:
        assert batch_size == 1
        StandIn.calls += 1
        return np.array(
            [[text.count(letter) + self.bias for letter in "abekorst"] for text in texts]
        )


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("sentence_transformers")
    module.SentenceTransformer = StandIn  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sentence_transformers", module)


def model(folder: Path, bias: float = 0.0) -> Path:
    folder.mkdir(parents=True)
    (folder / "modules.json").write_text("[]")
    (folder / "config.json").write_text(json.dumps({"bias": bias}))
    (folder / "README.md").write_text("not read")
    (folder / "code.py").write_text("raise SystemExit")
    return folder


def table(folder: Path, num: int = 90) -> Path:
    folder.mkdir(exist_ok=True)
    words = ("broken", "again", "thanks", "great")
    lines = [
        f"t{i},it is {words[i % 4]} {i},{[*Role][i % 3].value},{int(i % 4 < 2)}" for i in range(num)
    ]
    path = folder / "mine.csv"
    path.write_text("\n".join(("id,text,split,angry", *lines)))
    return path


@pytest.mark.usefixtures("stand_in")
class TestSentenceFeatures:
    def test_embeddings_are_kept_by_text_and_weights(self, tmp_path: Path) -> None:
        cache = tmp_path / "cache"
        kept = SentenceFeatures(folder=model(tmp_path / "model"), cache=cache)
        first = kept.transform(TEXTS)
        before = StandIn.calls
        assert (kept.transform(TEXTS) == first).all() and StandIn.calls == before
        assert stat.S_IMODE(cache.stat().st_mode) == 0o700
        kept.transform(["other"])
        other = SentenceFeatures(folder=model(tmp_path / "other", bias=1.0), cache=cache)
        assert other.identity != kept.identity
        assert (other.transform(TEXTS) == first + 1).all()
        assert len(list(cache.glob("*.npy"))) == 3

    def test_no_file_is_loaded_that_the_identity_leaves_out(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Such as weights in a pickle, which could change unnoticed and would not be packed."""
        loaded: list[set[str]] = []

        def of(folder: str, **_: Any) -> StandIn:
            loaded.append({file.name for file in Path(folder).rglob("*") if file.is_file()})
            return StandIn(folder, trust_remote_code=False, local_files_only=True)

        monkeypatch.setattr(sys.modules["sentence_transformers"], "SentenceTransformer", of)
        folder = model(tmp_path / "model")
        (folder / "dense").mkdir()
        (folder / "dense" / "pytorch_model.bin").write_bytes(b"weights")
        with ZipFile(tmp_path / "model.zip", "w") as packed:
            for file in folder.rglob("*"):
                packed.write(file, file.relative_to(folder))
        for place in (folder, tmp_path / "model.zip"):
            SentenceFeatures(folder=place).transform(TEXTS)
        assert loaded == [{"config.json", "modules.json"}] * 2

    def test_a_table_of_sentences(self, tmp_path: Path) -> None:
        sentences = SentenceFeatures(folder=model(tmp_path / "model"), cache=tmp_path / "cache")
        source = TextTable(table(tmp_path), sentences=sentences)
        public = source.records(Role.PUBLIC).features
        assert public.shape == (30, 8)
        assert (public[np.array([2])] == sentences.transform(["it is broken 8"]) - 0).shape == (
            1,
            8,
        )
        before = source.fingerprint(Role.PUBLIC)
        (tmp_path / "model" / "config.json").write_text('{"bias": 1}')
        changed = TextTable(
            tmp_path / "mine.csv", sentences=SentenceFeatures(folder=tmp_path / "model")
        )
        assert changed.fingerprint(Role.PUBLIC) != before
