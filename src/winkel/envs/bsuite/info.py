"""Old names of `families`, kept until no module uses them."""

from winkel.envs.bsuite.families import FAMILIES, bsuite_info, family_of

__all__ = ["FACTS", "bsuite_info", "family_of"]

FACTS = {name: family.facts for name, family in FAMILIES.items()}
