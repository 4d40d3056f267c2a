"""The palette of pages and their pictures, light and dark, as in the pictures of machines."""

from __future__ import annotations

from typing import Final

# Each light colour stands for its role in what matplotlib draws, so no two are the same. Told apart by colour-blind
# readers too, and the marks have shapes.
LIGHT: Final = {
    "page": "#ffffff", "panel": "#f8fafc", "ink": "#0f172a", "soft": "#526077", "grid": "#dbe2ec",
    "other": "#8494aa", "plan": "#0369a1", "winner": "#15803d", "bound": "#c2410c", "limit": "#7c3aed",
}  # fmt: skip
DARK: Final = {
    "page": "#0b1220", "panel": "#131d31", "ink": "#e8edf5", "soft": "#a3b1c6", "grid": "#2b3a54",
    "other": "#7c8ca5", "plan": "#38bdf8", "winner": "#4ade80", "bound": "#fb923c", "limit": "#b79cff",
}  # fmt: skip
FONT: Final = 'system-ui,-apple-system,"Segoe UI",Roboto,Helvetica,Arial,"DejaVu Sans",sans-serif'
