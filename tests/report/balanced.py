"""A parser of HTML that knows which tags are open."""

from html.parser import HTMLParser


class Balanced(HTMLParser):
    """Tags that are open."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open and closed at once."""

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
