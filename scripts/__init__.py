"""Scripts of the checkout, outside the package: benchmarks, figures of the pages, papers made again."""
