"""The version table: which policies were published in this lineage, and at which learner step.

Owns the order of versions. Guarantees: versions and steps both grow by publication, each step has exactly one version,
and each version descends from the one before it; so "older version" and "older step" mean the same.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from soliton.errors import RunError
from soliton.types import Publication


class VersionTable:
    """Rows of `Publication`, oldest first.

    Args:
        rows: the table so far; at least the policy that sampling starts from, whose number and step may be any (a
            resumed run starts high, fault G1).
    """

    def __init__(self, rows: Iterable[Publication]) -> None:
        self._rows: dict[int, Publication] = {}
        self._steps: list[int] = []
        self._versions: list[int] = []
        for row in rows:
            self._append(row)
        if not self._rows:
            raise ValueError("a version table needs the policy that sampling starts from; got no row")

    def add(self, publication: Publication) -> None:
        """Append the next policy.

        Raises:
            RunError: its version is not new, its parent is not the newest version, or its step is not the next one.
        """
        newest = self.newest
        if publication.version <= newest.version:
            raise RunError(
                f"published version {publication.version}, but {newest.version} exists; versions grow, none is reused"
            )
        if publication.parent != newest.version:
            raise RunError(
                f"version {publication.version} says that its parent is {publication.parent}; "
                f"the newest version is {newest.version}"
            )
        if publication.step != newest.step + 1:
            raise RunError(
                f"version {publication.version} says that it is step {publication.step}; the step after {newest.step} "
                "is due (one publication per actor update)"
            )
        self._append(publication)

    def _append(self, row: Publication) -> None:
        self._rows[row.version] = row
        self._steps.append(row.step)
        self._versions.append(row.version)

    @property
    def newest(self) -> Publication:
        """The policy published last."""
        return self._rows[self._versions[-1]]

    @property
    def rows(self) -> tuple[Publication, ...]:
        """All rows, oldest first."""
        return tuple(self._rows.values())

    def step_of(self, version: int) -> int | None:
        """Learner step of `version`; None if it was never published in this lineage."""
        row = self._rows.get(version)
        return None if row is None else row.step

    def oldest_within(self, step: int) -> int:
        """The smallest version whose step is >= `step`, which is at most the newest step."""
        return self._versions[bisect_left(self._steps, step)]
