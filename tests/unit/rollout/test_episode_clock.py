import asyncio

from soliton.rollout.episode_clock import EpisodeClock
from tests.fakes.manual_clock import ManualClock


def test_it_follows_the_run_until_it_is_rewound():
    clock = ManualClock(start=100.0)
    episode = EpisodeClock(clock)
    assert episode.now() == 100.0
    episode.rewind(40.0)
    assert episode.now() == 40.0
    episode.catch_up()
    assert episode.now() == 100.0


def test_a_wait_that_lies_in_the_past_moves_only_the_episodes_time():
    clock = ManualClock(start=100.0)
    episode = EpisodeClock(clock)
    episode.rewind(40.0)
    asyncio.run(asyncio.wait_for(episode.sleep_until(70.0), 5))
    assert (episode.now(), clock.now()) == (70.0, 100.0)
    asyncio.run(asyncio.wait_for(episode.sleep_until(50.0), 5))
    assert episode.now() == 70.0


def test_a_wait_that_was_interrupted_takes_its_remainder():
    clock = ManualClock(start=100.0)
    episode = EpisodeClock(clock)
    episode.rewind(95.0)
    asyncio.run(clock.drive(episode.sleep_until(episode.now() + 8.0)))
    assert (episode.now(), clock.now()) == (103.0, 103.0)
