"""scikit-learn: a sampler, and models that are fitted on what it chooses."""

from bicore.compat.sklearn.models import CoresetClassifier, CoresetRegressor
from bicore.compat.sklearn.sampler import CoresetSampler

__all__ = ["CoresetClassifier", "CoresetRegressor", "CoresetSampler"]
