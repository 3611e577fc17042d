"""Multi-label classifiers with a differential-privacy guarantee, by Private Aggregation of Teacher Ensembles."""

__version__ = "0.1.0"
