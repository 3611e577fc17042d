"""Sources of records in three roles, and their partition over teachers."""
