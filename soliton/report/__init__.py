"""What a person sees of a run: the live view while it goes on, curves and tables afterwards.

Owns no data and decides nothing: a run is the same under every view. Knows neither models nor the store; it gets
names, numbers and text.
"""

from soliton.report.choose import make_view
from soliton.report.view import RunView

__all__ = ["RunView", "make_view"]
