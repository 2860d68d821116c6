"""Records in a file which results ``--redo`` still has to remove, so that an interrupted command can be resumed."""

import json
import pathlib
from collections.abc import Sequence
from typing import Any, TypedDict

from t2t_ext.errors import UserError
from t2t_ext.evaluation.score_table import digest
from t2t_ext.experiments.plan import Stage
from t2t_ext.experiments.stages import Say, is_redone, state_of
from t2t_ext.io import files, stored


class _Note(TypedDict):
    redo: list[str]
    left: list[str]


class Redo:
    """The stages whose results are removed and made again: each only once, even if the command is interrupted."""

    def __init__(self, work_dir: pathlib.Path, stages: Sequence[Stage], kinds: Sequence[str], say: Say) -> None:
        """Reads the record of the same command if that was interrupted; otherwise all stages of the kinds are due.

        Args:
          work_dir: The folder of the experiment.
          stages: The selected stages.
          kinds: Kinds that the user wants to redo.
          say: Called with a message if an interrupted command is resumed.

        Raises:
          UserError: The record is damaged.
        """
        self._work_dir = work_dir
        # One file for these stages with these settings: other seeds may be running in the same folder.
        self._path = work_dir / f"redo.{digest([(each.file_name, each.key) for each in stages])[:12]}.json"
        self._kinds = list(kinds)
        self._left = [self._name(each) for each in stages if is_redone(each, kinds)]
        note: Any = None
        try:
            note = stored.read(self._path, _Note)
        except FileNotFoundError:
            pass
        except (OSError, stored.Damaged) as error:
            raise UserError(f"{self._path} is damaged ({error}). Remove it: --redo then begins anew.") from error
        # If another command has since done everything, this is a new request, not a resumed one. Stages that follow the
        # redone ones count, too: a command that was interrupted in them must not train again.
        unfinished = note and any(state_of(each).word != "done" or self._name(each) in note["left"] for each in stages)
        if unfinished and note["redo"] == self._kinds:
            # What was made since, but with settings that have changed in the meantime, is made again, too.
            changed = [self._name(each) for each in stages if state_of(each).word == "changed"]
            self._left = [each for each in self._left if each in note["left"] or each in changed]
            say(f"--redo={','.join(kinds)} goes on where it was interrupted; to begin it anew, remove {self._path}")

    def _name(self, stage: Stage) -> str:
        return str(stage.marker.relative_to(self._work_dir))

    def is_due(self, stage: Stage) -> bool:
        """Returns whether the result of a stage is still to be removed."""
        return self._name(stage) in self._left

    def removed(self, stage: Stage) -> None:
        """Records that a result was removed and is now being made again."""
        self._left.remove(self._name(stage))
        content = {"redo": self._kinds, "left": self._left}
        files.write_text_atomically(self._path, json.dumps(content, indent=1) + "\n")

    def end(self) -> None:
        """Deletes the record, since everything was made again."""
        self._path.unlink(missing_ok=True)
