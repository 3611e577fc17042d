"""What needs the checkout and is no part of the package: benchmarks, figures of the pages, papers made again."""
