"""The loop: batches, updates, checkpoints and resume."""
