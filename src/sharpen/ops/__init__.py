"""Pure tensor mathematics: every function takes tensors and returns tensors, works in float64, and states its equation and source."""
