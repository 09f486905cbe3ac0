"""Views of a run: the console while it runs, and HTML pages made from its records."""
