"""Compiled stand-ins for parts of `nn`, in C++."""
