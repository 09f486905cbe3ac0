"""What is measured, how it is written down, and how it is shown."""
