"""`report.html`: one self-contained page about a run, from what its folder holds; no network, no torch.

Owns the page. Knows nothing of a run that is not in its folder. Guarantees: text that a run wrote is shown, never
interpreted; the page of a long run stays within a few megabytes.
"""

from soliton.report.html.configuration import Setting
from soliton.report.html.page import render_report

__all__ = ["Setting", "render_report"]
