"""A run on disk: its stages, its key, and the labels that leave it."""

from pate._runs.run import (
    KEY_BYTES as KEY_BYTES,
    Run as Run,
    StageChangedError as StageChangedError,
    ensure_key as ensure_key,
    first_stage as first_stage,
    labels_file as labels_file,
    read_key as read_key,
)
from pate._runs.stage import (
    DISCLOSURE as DISCLOSURE,
    EXPORTED as EXPORTED,
    LABEL as LABEL,
    METRICS as METRICS,
    MODEL as MODEL,
    REFERENCES as REFERENCES,
    REPORT as REPORT,
    STUDENT as STUDENT,
    TEACHERS_FIT as TEACHERS_FIT,
    TEACHERS_VOTE as TEACHERS_VOTE,
    VOTES_IMPORT as VOTES_IMPORT,
    Stage as Stage,
    StageInputs as StageInputs,
    StageState as StageState,
    other_inputs as other_inputs,
)
