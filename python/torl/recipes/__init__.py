"""Recipes: published systems, each written with the public names of torl alone."""
