"""The sandbox as other libraries' trainers take an environment or a tool: TRL's, and verifiers'.

Nothing here is imported by the rest of torl. A module is named after its library, and needs it installed.
"""
