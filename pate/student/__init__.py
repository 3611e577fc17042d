"""The student: a Lightning module, the data that it sees, how it is judged, and a linear one in closed form."""
