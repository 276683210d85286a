"""The console of the command line: rich's, whose every string is made safe before it is drawn."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from coterie.safe import plain


class SafeConsole(Console):
    """Strings pass here whether they are printed or stand in a table; rich's own control codes do not."""

    def render_str(self, text: str, **options: Any) -> Text:
        """The text, with what would steer the terminal written out."""
        return super().render_str(plain(text), **options)
