"""The student: a Lightning module, its data and its metrics; and a linear student for planning."""
