"""What made the demo's problems and its base model, which ship with torl; none of this does."""
