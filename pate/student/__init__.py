"""The student: a Lightning module, its data and its figures, and a student without its run."""

from typing import TYPE_CHECKING

from pate._lazy import lazy_names

if TYPE_CHECKING:
    from pate._linear import LinearStudent as LinearStudent, fit_linear as fit_linear
    from pate.data.features._modules import MapModule as MapModule, as_module as as_module
    from pate.student._answers import Predictor as Predictor
    from pate.student._carried import (
        ExportedStudent as ExportedStudent,
        InputFormat as InputFormat,
        load_student as load_student,
    )
    from pate.student._metrics import (
        agreement as agreement,
        choose_thresholds as choose_thresholds,
        evaluate as evaluate,
        evaluate_constant as evaluate_constant,
    )
    from pate.student._training import (
        Student as Student,
        StudentData as StudentData,
        masked_loss as masked_loss,
    )
else:
    __getattr__, __dir__ = lazy_names(__name__, __file__)
