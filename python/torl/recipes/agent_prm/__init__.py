"""AgentPRM: see README.md."""
