"""The compiled decoder: a packed model and its beam search in C++."""
