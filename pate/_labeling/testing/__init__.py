"""Contracts of aggregators and sources."""

import pytest

from pate._core import testing as testing  # which says what it needs

# before any of them is imported
pytest.register_assert_rewrite(*(f"{__name__}.{module}" for module in ("aggregators", "batches")))
