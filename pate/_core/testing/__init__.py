"""Contracts of mechanisms and events."""

try:
    import pytest
except ImportError:
    raise ImportError("pate.testing needs pytest: pip install 'pate[testing]'") from None

# before any of them is imported
pytest.register_assert_rewrite(*(f"{__name__}.{module}" for module in ("laws", "mechanisms")))
