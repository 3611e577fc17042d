"""Multi-label classifiers with a differential-privacy guarantee, by Private Aggregation of Teacher Ensembles."""

__version__ = "0.2.0"
