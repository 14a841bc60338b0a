"""Treatment effects: frame -> data -> model -> kernel -> results."""
