"""What a page of the documentation says, for stories: nothing else can be run."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Page:
    """The fenced blocks of a page: language and text."""

    name: str
    blocks: tuple[tuple[str, str], ...]

    @staticmethod
    def of(name: str) -> "Page":
        """``name``: the path of the page from the root of the repository."""
        return Page(name, tuple(_BLOCK.findall((ROOT / name).read_text())))

    def snippet(self, part: str) -> str:
        """The only ``python`` block that has ``part``."""
        (found,) = (text for language, text in self.blocks if language == "python" and part in text)
        return found

    def run(self, part: str, names: dict[str, object]) -> None:
        """Execute that block; ``names`` gets what it defines."""
        exec(compile(self.snippet(part), self.name, "exec"), names)

    def command(self, part: str) -> list[str]:
        """The arguments of ``tilewright`` in the only command of a ``sh`` block that has ``part``."""
        lines = [line for language, text in self.blocks if language == "sh" for line in text.splitlines()]
        (found,) = (line.partition("  #")[0] for line in lines if part in line)
        program, *arguments = shlex.split(found)
        assert program == "tilewright", found
        return arguments
