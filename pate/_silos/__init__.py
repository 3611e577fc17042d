"""Labels from silos that never show their votes: each adds noise, and masks that cancel in the sum.

The protocol is that of Bonawitz et al. (2017), "Practical Secure Aggregation for Privacy-Preserving
Machine Learning", with signatures, and with shares that can be verified. With few silos every pair
shares a mask.
"""

try:
    import Crypto as Crypto
except ImportError:
    raise ValueError(
        "Expected the package pycryptodome, got none: pip install 'pate[silos]'"
    ) from None
