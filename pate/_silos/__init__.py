"""Labels from silos that show their votes to nobody: each adds its share of the noise and masks that cancel in the sum.

The protocol is that of Bonawitz et al. (2017), "Practical Secure Aggregation for Privacy-Preserving
Machine Learning", with signatures, and with shares that can be verified. With few silos every pair
shares a mask.
"""
