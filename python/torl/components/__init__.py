"""The components that a configuration chooses by name: a folder for each kind."""
