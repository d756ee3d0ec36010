"""Post-train reasoning language models with verifiable rewards, and see what the training really changed."""

__version__ = "0.1.0"
