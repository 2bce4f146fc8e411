"""Settings of a recipe searched on validation data, by many short or long trainings that are compared."""
