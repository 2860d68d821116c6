"""Runs the Python blocks of README and of the documentation pages."""

import pathlib
import re

ROOT = pathlib.Path(__file__).parents[1]
BLOCK = re.compile(r"(?ms)^```python\n(.*?)^```")


def run_blocks(page, *, blocks=slice(None), names=None, replaced=None):
    """Runs a page's Python blocks one after the other in one namespace and returns that namespace.

    Args:
      page: The page's path relative to the repository.
      blocks: A slice that selects blocks; all by default.
      names: Name -> value of the names that the blocks use without defining them.
      replaced: Text -> its replacement in the test, such as fewer steps; every text must occur in the blocks.
    """
    texts = BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))[blocks]
    assert texts, f"{page} has no such Python block"
    for old in replaced or {}:
        assert any(old in text for text in texts), f"{page}: {old!r} is in none of its blocks"
    namespace = {"__name__": "__main__", **(names or {})}
    for number, text in enumerate(texts, 1):
        for old, new in (replaced or {}).items():
            text = text.replace(old, new)
        exec(compile(text, f"{page}, Python block {number}", "exec"), namespace)
    return namespace
