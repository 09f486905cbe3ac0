"""From models and sets of problems to tables like those of the papers."""
