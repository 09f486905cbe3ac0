"""Programs that made the demo's problems and base model, which ship with torl; none of this does."""
