"""The release of anything made from private data: one transaction, and the two kinds of release, labels and top k."""
