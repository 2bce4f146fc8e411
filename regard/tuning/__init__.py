"""What a trained bundle is told from validation data: how it searches, and how its probabilities are read."""
