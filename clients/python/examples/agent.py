import sys
from pathlib import Path

from ctrlz import Session

project = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
session = Session("session-1", project)
turns = [("m1", "write", "a plan\n"), ("m2", "bash", "oops\n")]
for message, tool, text in turns:
    with session.step(message=message, tool=tool):  # recorded before and after, even if it fails
        (project / "notes.txt").write_text(text)
for diff in session.diff():
    print(f"{diff.file}: {diff.before!r} -> {diff.after!r}")
report = session.undo()  # undoes only the last turn; later changes by others stay
print("undone:", ", ".join(f"{action.action} {action.path}" for action in report.done))
