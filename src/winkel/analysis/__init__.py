"""Statistics of scores over seeds, bsuite's official scores, and export to bsuite's files."""
