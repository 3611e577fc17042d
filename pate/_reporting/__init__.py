"""The page on a run: what was guaranteed, asked, answered and learned, in one file of HTML."""
