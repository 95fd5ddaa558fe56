"""The search for hyperparameters of appendix B.1: a population of trials in lanes. Needs Optuna."""

from winkel.errors import InputError

try:
    import optuna  # noqa: F401
except ImportError as error:
    raise InputError(f"need Optuna: pip install 'winkel[search]' ({error})") from error
