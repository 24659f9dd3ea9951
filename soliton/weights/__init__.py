"""Weights: the published form, its hash, and files that appear whole or not at all. Knows neither trainer nor engine.

Importing this package does not import transformers.
"""

from soliton.weights.digest import weights_sha256
from soliton.weights.files import load_tensors, save_model_folder, save_tensors
from soliton.weights.published import load_published, published_state
from soliton.weights.versions import PublishedVersions

__all__ = [
    "PublishedVersions",
    "load_published",
    "load_tensors",
    "published_state",
    "save_model_folder",
    "save_tensors",
    "weights_sha256",
]
