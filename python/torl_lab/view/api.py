"""The JSON interface of the page: targets, lists of trajectories, single ones, comparisons and runs in the sandbox."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from torl_lab.view.comparison import MAX_MEMBERS, GroupTokens, compare, problem_history
from torl_lab.view.detail import trajectory_json
from torl_lab.view.live import LiveState, ViewedTarget
from torl_lab.view.overview import metric_curve, overview
from torl_lab.view.requests import (
    AsciiJson,
    answering,
    as_download,
    call_number,
    in_thread,
    parse_number,
    parse_query,
    read_body,
    required,
)
from torl_lab.view.rows import Place, find_place, group_places, places_of, summaries
from torl_lab.view.search import check_expression, search_pattern
from torl_lab.view.selection import SORTS, Matches, count_facets, match, ordered

_MAX_PAGE: Final = 500
_MAX_OFFSET: Final = 10_000_000
_LIST_PARAMETERS: Final = ("run", "sort", "order", "offset", "limit", "pattern", "facets")


class Api:
    """The handlers of requests, on the state of all targets."""

    def __init__(self, state: LiveState) -> None:
        self._state = state
        self._group_tokens = GroupTokens()

    def routes(self) -> list[Route]:
        """Return the routes of the interface."""
        reading = (self.overview, self.metric, self.trajectories, self.trajectory, self.token, self.compare)
        acting = (self.verify, self.replay, self.experiment)
        return [
            *(Route(f"/api/{work.__name__}", in_thread(work), methods=["GET"]) for work in (*reading, self.problem)),
            *(Route(f"/api/{work.__name__}", self._acting(work), methods=["POST"]) for work in acting),
            Route("/api/search", answering(self.search), methods=["GET"]),
            Route("/api/events", answering(self.events), methods=["GET"]),
            Route("/api/row", in_thread(self.row, as_download), methods=["GET"]),
        ]

    # --- runs ---------------------------------------------------------------------------------------------

    def overview(self, request: Request) -> Any:
        """Return runs, curves, changes and differing settings."""
        return overview([each.records for each in self._targets(request)])

    def metric(self, request: Request) -> Any:
        """Return the curve of one metric."""
        return metric_curve([each.records.read()[0] for each in self._targets(request)], required(request, "name"))

    async def events(self, request: Request) -> Response:
        """Send the states of all targets as server-sent events."""

        async def stream() -> AsyncIterator[str]:
            async for states in self._state.states():
                yield ": no change\n\n" if states is None else f"data: {json.dumps(states)}\n\n"

        return StreamingResponse(stream(), media_type="text/event-stream")

    # --- lists --------------------------------------------------------------------------------------------

    def trajectories(self, request: Request) -> Any:
        """Return a page of the trajectories that meet a query, their number, and counts of all facets."""
        matches, sort, descending = self._matches(request)
        offset = parse_number(request.query_params, "offset", 0, _MAX_OFFSET)
        limit = parse_number(request.query_params, "limit", 100, _MAX_PAGE)
        order = ordered(matches, sort, descending=descending, count=offset + limit)[offset:]
        page: dict[str, Any] = {
            "total": sum(int(each.mask.sum()) for each in matches),
            "rows": summaries(places_of(matches, order)),
        }
        if request.query_params.get("facets") != "0":
            page["facets"] = count_facets(matches)
            page["facets"]["run"] = self._run_counts(request, matches)
        return page

    async def search(self, request: Request) -> Response:
        """Stream the trajectories that meet a query and whose response matches a regular expression."""
        expression = required(request, "pattern")
        check_expression(expression)
        matches, sort, descending = await run_in_threadpool(self._matches, request)
        found = search_pattern(matches, expression, sort, descending=descending)
        return StreamingResponse(found, media_type="application/x-ndjson")

    def _matches(self, request: Request) -> tuple[list[Matches], str, bool]:
        parameters = request.query_params
        query = parse_query(parameters, _LIST_PARAMETERS)
        matches = [match(each.reader, query) for each in self._targets(request) if len(each.reader.columns())]
        return matches, parameters.get("sort", SORTS[0]), parameters.get("order", "desc") != "asc"

    def _run_counts(self, request: Request, matches: Sequence[Matches]) -> dict[str, int]:
        query = parse_query(request.query_params, _LIST_PARAMETERS)
        matched = {each.reader.target.label: each for each in matches}
        every = {label: matched.get(label) or match(each.reader, query) for label, each in self._state.targets.items()}
        return {label: int(each.mask.sum()) for label, each in every.items()}

    # --- trajectories -------------------------------------------------------------------------------------

    def trajectory(self, request: Request) -> Any:
        """Return one trajectory."""
        start = parse_number(request.query_params, "start", 0, _MAX_OFFSET)
        return trajectory_json(self._place(request.query_params.get), start)

    def token(self, request: Request) -> Any:
        """Return one token of a response in the other members of its group."""
        index = parse_number(request.query_params, "index", 0, _MAX_OFFSET)
        return self._group_tokens.at(self._place(request.query_params.get), index)

    def row(self, request: Request) -> Any:
        """Return the line of a trajectory as it is in its file."""
        return self._place(request.query_params.get).read()

    def compare(self, request: Request) -> Any:
        """Return responses side by side: the trajectories `at`, or the members of one trajectory's group."""
        chosen = request.query_params.getlist("at")
        if len(chosen) > MAX_MEMBERS:
            raise ValueError(f"at most {MAX_MEMBERS} trajectories can be compared, got {len(chosen)}")
        places = [self._place_at(each) for each in chosen]
        return compare(places or group_places(self._place(request.query_params.get)))

    def problem(self, request: Request) -> Any:
        """Return all attempts at each problem with an id or a key."""
        return problem_history([each.reader for each in self._targets(request)], required(request, "id"))

    # --- work ---------------------------------------------------------------------------------------------

    async def verify(self, target: ViewedTarget, place: Place, body: dict[str, Any]) -> Any:
        """Check a trajectory by `torl verify`, or all trajectories of its file."""
        line = None if body.get("whole") is True else place["line"]
        return await target.verify(place.path, line)

    async def replay(self, target: ViewedTarget, place: Place, body: dict[str, Any]) -> Any:
        """Run a call again."""
        return await target.replayer.replay(place, call_number(body))

    async def experiment(self, target: ViewedTarget, place: Place, body: dict[str, Any]) -> Any:
        """Run other code instead of a call's."""
        code = body.get("code")
        if not isinstance(code, str):
            raise ValueError("code must be text")
        return await target.replayer.experiment(place, call_number(body), code)

    def _acting(
        self, work: Callable[[ViewedTarget, Place, dict[str, Any]], Awaitable[Any]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Return the handler of work on the trajectory that the body of a request names."""

        async def handle(request: Request) -> Response:
            body = await read_body(request)
            place = self._place(body.get)
            return AsciiJson(await work(self._target(place.reader.target.label), place, body))

        return answering(handle)

    # --- targets ------------------------------------------------------------------------------------------

    def _targets(self, request: Request) -> list[ViewedTarget]:
        labels = request.query_params.getlist("run") or list(self._state.targets)
        return [self._target(label) for label in dict.fromkeys(labels)]

    def _target(self, label: str) -> ViewedTarget:
        if label not in self._state.targets:
            raise LookupError(f"no run {label!r}; the runs are: {', '.join(self._state.targets)}")
        return self._state.targets[label]

    def _place(self, parameter: Callable[[str], Any]) -> Place:
        run, file, line = parameter("run"), parameter("file"), parameter("line")
        if not isinstance(run, str) or not isinstance(file, str):
            raise ValueError("run and file must be text")
        if isinstance(line, str) and line.isdecimal() and len(line) <= 10:
            line = int(line)
        if not isinstance(line, int):
            raise ValueError("line must be a whole number")
        return find_place(self._target(run).reader, file, line)

    def _place_at(self, text: str) -> Place:
        """Return the place of "run:file:line"; a label or a file may contain colons, a file of a run does not."""
        rest, _, line = text.rpartition(":")
        run = next((label for label in self._state.targets if rest.startswith(f"{label}:")), "")
        return self._place({"run": run, "file": rest.removeprefix(f"{run}:"), "line": line}.get)
