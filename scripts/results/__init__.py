"""Results of the pages: a JSON file for each table, and the command that makes it again."""
