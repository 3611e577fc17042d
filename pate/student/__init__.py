"""The student: a Lightning module, the data that it sees, and how it is judged."""

from pate.student.data import StudentData
from pate.student.metrics import evaluate, majority_answer
from pate.student.module import Student

__all__ = ["Student", "StudentData", "evaluate", "majority_answer"]
