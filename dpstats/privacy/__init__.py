"""Noise, budgets and bounds: everything that touches the privacy guarantee."""
