"""The student: a Lightning module, its data and its metrics."""
