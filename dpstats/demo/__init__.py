"""Worked examples on public teaching data."""
