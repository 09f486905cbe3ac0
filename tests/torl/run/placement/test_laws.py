"""Laws of placements: every request to every machine is refused, or divides its devices cleanly."""

from hypothesis import given
from hypothesis import strategies as st

from torl.base.errors import ConfigError
from torl.run.config import PlacementConfig
from torl.run.placement.assign import place
from torl.run.placement.machine import Machine
from torl.run.placement.sides import PlacementRequest

counts = st.none() | st.integers(1, 9)
wishes = st.builds(
    PlacementRequest,
    ranks=counts,
    replicas=counts,
    tensor_parallel=st.sampled_from([1, 2, 3, 4, 8]),
    learns=st.booleans(),
    asynchronous=st.booleans(),
    has_local_engine=st.booleans(),
).filter(lambda wanted: wanted.learns or not wanted.asynchronous)
some = st.lists(st.integers(0, 9), min_size=1, unique=True)
machines = st.builds(Machine, st.just(()), cores=st.integers(1, 9), host_bytes=st.just(1)) | st.builds(
    lambda count: Machine.with_gpus(count, 1), st.integers(1, 9)
)


def section(gpus: object, learner: object, engine: object) -> PlacementConfig | None:
    try:
        return PlacementConfig.model_validate({"gpus": gpus, "learner": learner, "engine": engine})
    except ValueError:
        return None


sections = st.builds(section, st.just("all") | st.integers(1, 9) | some, st.none() | some, st.none() | some)


@given(sections.filter(bool), wishes, machines)
def test_devices_are_divided_cleanly_or_refused(
    config: PlacementConfig, wanted: PlacementRequest, machine: Machine
) -> None:
    try:
        placement = place(config, wanted, machine)
    except ConfigError:
        return
    learner = placement.learner_devices
    engines = [device for replica in placement.engine_devices for device in replica]
    assert {*learner, *engines} <= set(range(machine.devices))
    assert bool(learner) == wanted.learns
    assert bool(engines) == wanted.has_local_engine
    assert wanted.ranks in (None, placement.ranks) or not wanted.learns
    assert wanted.replicas in (None, placement.replicas) or not wanted.has_local_engine
    if machine.gpus:
        assert len(set(learner)) == len(learner) == placement.ranks
        assert len(set(engines)) == len(engines)
        assert all(len(replica) == wanted.tensor_parallel for replica in placement.engine_devices)
        assert set(learner) == set(engines) or set(learner).isdisjoint(engines)
        if wanted.asynchronous and engines:
            assert set(learner).isdisjoint(engines)
    if config.learner is not None and wanted.learns:
        assert set(learner) <= set(config.learner)
    if config.engine is not None and wanted.has_local_engine:
        assert set(engines) <= set(config.engine)


@given(wishes, machines)
def test_a_placement_that_was_settled_is_the_same_again(wanted: PlacementRequest, machine: Machine) -> None:
    try:
        placement = place(PlacementConfig(), wanted, machine)
    except ConfigError:
        return
    again = PlacementRequest(
        ranks=placement.ranks or None,
        replicas=placement.replicas or None,
        tensor_parallel=wanted.tensor_parallel,
        learns=wanted.learns,
        asynchronous=wanted.asynchronous,
        has_local_engine=wanted.has_local_engine,
    )
    assert place(PlacementConfig(), again, machine) == placement
