"""The exercises, one a file: a new file here is a new exercise."""
