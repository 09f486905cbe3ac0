"""The commands of `torl` that are not commands of one package. `torl.__main__` lists all commands."""
