"""What a model can do, and what training changed: Pass@K and Maj@K with intervals, before and after."""
