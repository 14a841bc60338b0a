"""Synthetic control: panel -> data -> model -> kernel -> results."""
