"""The loops: an agent, a replay and a world, step by step."""
