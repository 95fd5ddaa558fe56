"""Reports: from runs to one HTML page that says which of the paper's claims they reproduce."""

from winkel.report.claims import assess, load_claims
from winkel.report.page import write_report

__all__ = ["assess", "load_claims", "write_report"]
