"""The page on a run, its guarantee, queries, labels and student, in one file of HTML."""
