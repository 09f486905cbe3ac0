"""ECHO: the replies of tools are predicted as well as the own tokens. torl has the imitation built in."""
