"""DeepMind's bsuite 0.3.6 as pure functions, equal to the original step by step."""
