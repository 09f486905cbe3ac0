"""The base of torl, which imports no other part: types, options, components, errors, files and processes."""
