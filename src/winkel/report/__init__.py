"""Reports: from runs to one HTML page that says which of the paper's claims they bear out."""

from winkel.report.claims import Claim, Judged, judge, load_claims
from winkel.report.page import write_report

__all__ = ["Claim", "Judged", "judge", "load_claims", "write_report"]
