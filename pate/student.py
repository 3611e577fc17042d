"""The student: a Lightning module, its data and its figures, and a student without its run."""

from pate._core.package import TYPE_CHECKING, lazy_names

if TYPE_CHECKING:
    from pate._labeling.linear import LinearStudent as LinearStudent, fit_linear as fit_linear
    from pate._labeling.runs.carried import (
        ExportedStudent as ExportedStudent,
        InputFormat as InputFormat,
        load_student as load_student,
    )
    from pate._labeling.runs.released import (
        agreement as agreement,
        choose_thresholds as choose_thresholds,
        evaluate as evaluate,
        evaluate_constant as evaluate_constant,
    )
    from pate._networks.settings import MapModule as MapModule, as_module as as_module
    from pate._networks.student.answers import Predictor as Predictor
    from pate._networks.student.training import (
        Student as Student,
        StudentData as StudentData,
        masked_loss as masked_loss,
    )
else:
    __getattr__, __dir__ = lazy_names(__name__, __file__)
