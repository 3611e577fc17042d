"""Labels from silos that never show their votes: each adds noise, and masks that cancel in the sum.

The protocol follows Bonawitz et al. (2017), "Practical Secure Aggregation for Privacy-Preserving
Machine Learning", with signatures, and with shares that can be verified. With few silos every pair
shares a mask.
"""

from pate._validation import expecting

with expecting("the package pycryptodome", ImportError, got="none: pip install 'pate[silos]'"):
    import Crypto as Crypto
