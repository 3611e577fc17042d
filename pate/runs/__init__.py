"""A run on disk: its stages, files and lock, and the labels that leave it."""

from pate.runs.files import Json as Json
from pate.runs.files import Stream as Stream
from pate.runs.files import code_version as code_version
from pate.runs.files import digest as digest
from pate.runs.files import make_once as make_once
from pate.runs.files import replacing as replacing
from pate.runs.files import write_arrays as write_arrays
from pate.runs.files import write_json as write_json
from pate.runs.files import write_text as write_text
from pate.runs.run import KEY_BYTES as KEY_BYTES
from pate.runs.run import LABEL as LABEL
from pate.runs.run import METRICS as METRICS
from pate.runs.run import REFERENCES as REFERENCES
from pate.runs.run import STUDENT as STUDENT
from pate.runs.run import TEACHERS_FIT as TEACHERS_FIT
from pate.runs.run import TEACHERS_VOTE as TEACHERS_VOTE
from pate.runs.run import VOTES_IMPORT as VOTES_IMPORT
from pate.runs.run import Run as Run
from pate.runs.run import Stage as Stage
from pate.runs.run import StageChangedError as StageChangedError
from pate.runs.run import first_stage as first_stage
from pate.runs.run import key_file as key_file
from pate.runs.run import labels_file as labels_file
from pate.runs.run import made_key as made_key
from pate.runs.run import read_key as read_key
from pate.runs.run import voting_stage as voting_stage
