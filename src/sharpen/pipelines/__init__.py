"""Stages in a row: a run with its evaluations, measuring a model, the candidate run."""
