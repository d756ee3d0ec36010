"""Policies: loading, packing, saving, and the embedded and candidate ones."""
