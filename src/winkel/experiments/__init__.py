"""Experiments: each computes named arrays, which a figure then draws."""
