"""Problems → groups of completions with log-probabilities."""
