"""The version table: which policies were published in this lineage, and at which learner step.

Owns the order of versions. Guarantees: versions grow by publication, steps never go back, and each version descends
from the one before it; so an older version is never a newer step. A step has one version, or several with the same
hash: a resumed learner publishes what it found in its checkpoint again, under a new number.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from soliton.errors import RunError
from soliton.types import NO_VERSION, Publication


class VersionTable:
    """Rows of `Publication`, oldest first.

    Args:
        rows: the table so far. The first row's number and step may be any (a resumed run starts high, fault G1).
        highest: the highest number ever used, those of rolled-back publications included.
    """

    def __init__(self, rows: Iterable[Publication] = (), highest: int = NO_VERSION) -> None:
        self._highest = highest
        self._reset(rows)

    def _reset(self, rows: Iterable[Publication]) -> None:
        self._rows: dict[int, Publication] = {}
        self._steps: list[int] = []
        self._versions: list[int] = []
        for row in rows:
            self._append(row)

    def add(self, publication: Publication, *, trained: bool) -> None:
        """Append the next policy.

        Args:
            publication: the row.
            trained: a batch was trained to make it. Otherwise it is the first one, or the newest one once more.

        Raises:
            RunError: its version is not new, its parent is not the newest version, its step does not follow, or it
                claims to be the newest policy and has another hash.
        """
        if publication.version <= self._highest:
            raise RunError(
                f"published version {publication.version}, but {self._highest} exists; "
                f"versions grow, none is reused: the next one is {self.next_version} or higher"
            )
        parent = self._versions[-1] if self._versions else NO_VERSION
        if publication.parent != parent:
            raise RunError(
                f"version {publication.version} says that its parent is {publication.parent}; "
                f"the newest version is {parent}"
            )
        if self._versions:
            self._check_step(publication, trained)
        self._append(publication)

    def _check_step(self, publication: Publication, trained: bool) -> None:
        newest = self.newest
        if trained and publication.step != newest.step + 1:
            raise RunError(
                f"version {publication.version} says that it is step {publication.step}; the step after {newest.step} "
                "is due (one publication per actor update)"
            )
        if not trained and (publication.step, publication.sha256) != (newest.step, newest.sha256):
            raise RunError(
                f"version {publication.version} comes without a batch, so it must be version {newest.version} again "
                f"(step {newest.step}, hash {newest.sha256[:12]}); it is step {publication.step}, "
                f"hash {publication.sha256[:12]}"
            )

    def _append(self, row: Publication) -> None:
        self._rows[row.version] = row
        self._steps.append(row.step)
        self._versions.append(row.version)
        self._highest = max(self._highest, row.version)

    def rewind(self, version: int) -> None:
        """Forget every publication after `version`; their numbers stay used. -1 forgets all.

        Raises:
            RunError: `version` is not in this lineage.
        """
        if version != NO_VERSION and version not in self._rows:
            known = f"{self._versions[0]}..{self._versions[-1]}" if self._versions else "none"
            raise RunError(f"cannot go back to version {version}: it is not in this lineage (versions {known})")
        self._reset([row for row in self._rows.values() if row.version <= version])

    @property
    def is_empty(self) -> bool:
        """No policy has been published yet."""
        return not self._versions

    @property
    def newest(self) -> Publication:
        """The policy published last. There must be one."""
        assert self._versions, "no policy has been published yet"
        return self._rows[self._versions[-1]]

    @property
    def next_version(self) -> int:
        """The lowest number that was never used."""
        return self._highest + 1

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
