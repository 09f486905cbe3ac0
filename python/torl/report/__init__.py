"""How a run is shown: the console while it runs, and one page of HTML made from its records."""
