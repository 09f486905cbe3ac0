"""The environment of the dialogue demo as a server of OpenEnv's. `python openenv_color.py PORT`."""

import random
import sys
from pathlib import Path
from typing import Any

import uvicorn
from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app

sys.path.insert(0, str(Path(__file__).parents[2]))

from demo_maker.chat import answer
from demo_maker.dialogue import ASKS, COLORS, told


class Said(Action):
    message: str


class Heard(Observation):
    text: str = ""


class ColorServer(Environment[Said, Heard, State]):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._color = ""

    def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> Heard:
        self._color = random.Random(seed).choice(COLORS)
        return Heard()

    def step(self, action: Said, **_: Any) -> Heard:
        if action.message == ASKS:
            return Heard(text=told(self._color))
        return Heard(done=True, reward=float(action.message == answer(self._color)))

    @property
    def state(self) -> State:
        return State()


if __name__ == "__main__":
    app = create_fastapi_app(ColorServer, Said, Heard, max_concurrent_envs=256)
    uvicorn.run(app, port=int(sys.argv[1]), log_level="error")
