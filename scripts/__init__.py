"""Scripts of the checkout: benchmarks, figures of the pages, papers reproduced."""
