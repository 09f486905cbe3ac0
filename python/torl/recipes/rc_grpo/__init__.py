"""RC-GRPO: see README.md."""
