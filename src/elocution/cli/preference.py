"""`elocution preference`."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["preference"]


def preference(
    files: Annotated[
        list[Path], typer.Argument(help="Votes that a report's blind test saved, a file for each listener.")
    ],
) -> None:
    """Prints which side of a report's blind test was preferred, and how sure that is.

    Example: `elocution preference preference-demo.json`. The interval is Wilson's 95 %; each listener stands alone.
    """
    from elocution.report.preference import count_votes, read_votes

    for path in files:
        votes = read_votes(path)
        found = count_votes(votes.votes, votes.sides)
        typer.echo(
            f"{path}: run {votes.run}: “{found.sides[1]}” preferred over “{found.sides[0]}” in {found.preferred} of "
            f"{found.decided} pairs: {100 * found.share:.1f} % [{100 * found.low:.1f}, {100 * found.high:.1f}]; "
            f"{found.undecided} without a preference; {found.verdict}"
        )
