"""Answers at inference time: best-of-N, weighted votes, beam and tree search, compared at equal generated tokens."""
