"""Python blocks of README and the documents, run as they stand."""

import pathlib
import re

ROOT = pathlib.Path(__file__).parents[1]
BLOCK = re.compile(r"(?ms)^```python\n(.*?)^```")


def run_blocks(page, *, blocks=slice(None), names=None, replaced=None):
    """Runs a page's Python blocks one after the other in one namespace, which is returned.

    Args:
      page: Relative to the repository.
      blocks: Which of them; all, where not given.
      names: What the blocks take for granted.
      replaced: Text -> what stands for it in the test, such as fewer steps; each must be in the blocks.
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
