"""What the tables of a recipe may say about data and training. Using a model loads no training for it."""
