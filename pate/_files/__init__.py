"""Files that appear whole or not at all, locks, and files of others that are read with care."""
