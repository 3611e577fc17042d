"""Teachers in closed form, and the work on chunks of teachers."""
