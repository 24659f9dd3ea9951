"""The learner's loop, the same in every runtime: batch, critic and actor updates, publish, remaining critic updates.

    run   waits for: a full batch (the store)        unblocked by rollouts, which commit
          waits for: the publication to be written   unblocked by itself

It owns where the learner is in its lineage. What differs between runtimes is behind `Store`, `Clock` and `publish`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from torch import Tensor

from soliton.config import RunConfig
from soliton.errors import RunError
from soliton.evals.evaluation import mean_info
from soliton.failpoints import failpoint
from soliton.learner.learner import Learner
from soliton.runtime.controls import with_shuffled_rewards
from soliton.runtime.mixture import environment_metrics
from soliton.store.staleness import dropped_long_share
from soliton.store.store import BatchItem, Store, StoreStatus
from soliton.types import Clock, Publication, stable_seed
from soliton.weights import published_state, weights_sha256

StepMetrics = dict[str, float]
Publish = Callable[[dict[str, Tensor], Publication], Awaitable[None]]
"""Hands weights (checkpoint names, a copy) to the engines; the store learns of them afterwards."""
OnStep = Callable[[int, int, StepMetrics], None]
"""Told (policy step, batches, metrics) after each batch."""
Tell = Callable[[], Awaitable[None]]
"""Tells the store that a batch is trained."""
Fit = Callable[[], StepMetrics]
"""Makes the critic's remaining updates."""


async def tell_then_fit(tell: Tell, fit: Fit) -> StepMetrics:
    """One after the other, in an order that never changes."""
    await tell()
    return fit()


@dataclass(frozen=True)
class Pace:
    """Simulated durations, in seconds of the clock; 0 where time passes by itself.

    Attributes:
        actor_update_s: from taking a batch to publishing.
        critic_updates_s: the critic's remaining updates.
    """

    actor_update_s: float = 0.0
    critic_updates_s: float = 0.0


class Learning:
    """Steps a learner until a step is reached.

    Attributes:
        newest: the policy published last.
        batches: batches consumed, those included that moved only the critic.
    """

    def __init__(
        self,
        *,
        config: RunConfig,
        learner: Learner,
        store: Store,
        clock: Clock,
        publish: Publish,
        on_step: OnStep,
        newest: Publication,
        batches: int,
        pace: Pace = Pace(),
        finish: Callable[[Tell, Fit], Awaitable[StepMetrics]] = tell_then_fit,
    ) -> None:
        self.newest = newest
        self.batches = batches
        self._config = config
        self._learner = learner
        self._store = store
        self._clock = clock
        self._publish = publish
        self._on_step = on_step
        self._pace = pace
        self._finish = finish
        self._since_s = clock.now()

    async def run(self, until_step: int) -> bool:
        """Train until `until_step` steps are published.

        Returns:
            False if the store had no more work before that.

        Raises:
            RunError: the ledger does not balance, or the learner cannot go on.
        """
        while self.newest.step < until_step:
            items = await self._store.take()
            if not items:
                return False
            await self._step(items)
        return True

    async def _step(self, items: list[BatchItem]) -> None:
        failpoint("learner.after_take")
        self._learner.start_step(trained_items(self._config, items, self.batches), self.newest.version)
        moved = self._learner.update_actor()
        await self._clock.sleep_until(self._clock.now() + self._pace.actor_update_s)
        publication = await self._published() if moved else None
        failpoint("learner.between_weights_and_cursor")
        metrics = await self._finish(lambda: self._tell(items, publication), self._learner.finish_step)
        await self._clock.sleep_until(self._clock.now() + self._pace.critic_updates_s)
        self.batches += 1
        reported = {f"info/{name}": value for name, value in mean_info([item.trajectory for item in items]).items()}
        metrics |= {**reported, **environment_metrics(items), **self._rate(metrics)}
        self._report(metrics, await self._store.status())

    async def _tell(self, items: list[BatchItem], publication: Publication | None) -> None:
        await self._store.finish_step([item.trajectory.attempt for item in items], publication)
        failpoint("learner.after_finish")

    def _rate(self, metrics: StepMetrics) -> StepMetrics:
        """Tokens that the actor learned from, by the time since the step before, or since this learner began."""
        began_s, self._since_s = self._since_s, self._clock.now()
        passed_s = self._since_s - began_s
        if "actor/signal_share" not in metrics or passed_s <= 0:
            return {}
        learned = metrics["actor/signal_share"] * metrics["tokens/action"]
        return {"time/effective_tokens_per_s": learned / passed_s}

    async def _published(self) -> Publication:
        weights = published_state(self._learner.actor.model)
        publication = Publication(
            version=self.newest.version + 1,
            parent=self.newest.version,
            step=self.newest.step + 1,
            sha256=weights_sha256(weights),
        )
        await self._publish(weights, publication)
        self.newest = publication
        return publication

    def _report(self, metrics: StepMetrics, status: StoreStatus) -> None:
        if status.ledger.balance != 0:
            raise RunError(f"step {status.step}: the ledger is off by {status.ledger.balance}: {status.ledger}")
        self._on_step(status.step, self.batches, {**metrics, **_store_metrics(status, self._clock.now())})


def trained_items(config: RunConfig, items: list[BatchItem], batch: int) -> list[BatchItem]:
    """What the learner sees of batch number `batch` (0 first): the batch itself, or the negative control's."""
    if not config.train.shuffle_rewards:
        return items
    return with_shuffled_rewards(items, stable_seed(config.seed, "shuffle", batch))


def _store_metrics(status: StoreStatus, now_s: float) -> StepMetrics:
    ledger = status.ledger
    return {
        "train/policy_step": float(status.step),
        "time/clock_s": now_s,
        "wait/admission_s": status.admission_wait_s,
        "wait/batch_s": status.batch_wait_s,
        "wait/hold_s": status.hold_wait_s,
        "ledger/issued": float(ledger.issued),
        "ledger/trained": float(ledger.trained),
        "ledger/queued": float(ledger.queued),
        "ledger/in_flight": float(ledger.in_flight),
        "ledger/superseded": float(ledger.superseded),
        "ledger/dropped": float(sum(ledger.dropped.values())),
        **{f"ledger/dropped_{reason}": float(count) for reason, count in ledger.dropped.items()},
        "ledger/draws_given_up": float(status.num_given_up),
        "staleness/dropped_long_share": dropped_long_share(status.dropped_by_length_decile),
        **{f"env/{name}/failed": float(count) for name, count in status.failed_by_environment.items()},
    }
