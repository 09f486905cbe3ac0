"""A server of OpenEnv: a number is to be guessed, with a hint after each guess. `python openenv_number.py PORT`."""

import random
import sys
from typing import Any

import uvicorn
from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app


class Guess(Action):
    number: int


class Hint(Observation):
    hint: str = ""


class Number(Environment[Guess, Hint, State]):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._number = 0
        self._state = State()

    def reset(self, seed: int | None = None, episode_id: str | None = None, largest: int = 9, **_: Any) -> Hint:
        self._number = random.Random(seed).randint(1, largest)
        self._state = State(episode_id=episode_id)
        return Hint(hint=f"Between 1 and {largest}.")

    def step(self, action: Guess, **_: Any) -> Hint:
        self._state.step_count += 1
        if action.number == 0:
            raise ValueError("zero breaks it")
        if action.number == self._number:
            return Hint(hint="Right.", done=True, reward=1.0)
        return Hint(hint="Larger." if action.number < self._number else "Smaller.", reward=-0.25)

    @property
    def state(self) -> State:
        return self._state


if __name__ == "__main__":
    uvicorn.run(create_fastapi_app(Number, Guess, Hint), port=int(sys.argv[1]), log_level="error")
