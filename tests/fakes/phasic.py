"""An environment of two turns that shows and judges by the phase of the moment, for real runs of it."""

from soliton.envs import BaseEnvironment


class Phasic(BaseEnvironment):
    phases = 3

    @staticmethod
    def item(rng):
        return {"n": int(rng.integers(1000))}

    def opening(self):
        self.turns = 0
        return f"{self.surroundings.phase}:{self.content['n']}"

    def act(self, action):
        self.turns += 1
        if self.turns == 1:
            return self.say(f"{self.surroundings.phase}")
        return self.end(float((len(action) + self.surroundings.phase) % 2), length=len(action))
