"""Which replica the routing policy chooses, and why."""

from __future__ import annotations

import time
from collections import Counter
from itertools import count
from random import Random

from specserve_ray.policy import Policy
from specserve_ray.policy_options import PolicyOptions
from specserve_ray.replica_stats import ReplicaStats
from specserve_ray.wire import RoutingKey

OPTIONS = PolicyOptions(max_imbalance=4, max_load_ratio=1.5)


def policy_of(num_replicas: int, options: PolicyOptions = OPTIONS, **stats: ReplicaStats) -> Policy:
    policy = Policy(options, Random(1))
    policy.update({f"r{number}": ReplicaStats() for number in range(num_replicas)} | stats)
    return policy


def key(*blocks: str, adapter: str = "", salt: str = "", wanted: str = "") -> RoutingKey:
    chain = tuple(" ".join((adapter, salt, *blocks[: index + 1])).encode() for index in range(len(blocks)))
    return RoutingKey(namespace=adapter + salt, adapter=adapter, chain=chain, wanted=wanted)


NUMBERS = count()


def send(policy: Policy, key: RoutingKey) -> str:
    """Choose, and let the request run."""
    choice = policy.choose(key)
    policy.hold(str(next(NUMBERS)), choice.replica, key)
    return choice.replica


def serve(policy: Policy, replica: str, key: RoutingKey) -> None:
    """Let the replica serve such a request, from its beginning to its end."""
    policy.hold("served", replica, key)
    policy.release("served")


def test_a_conversation_goes_on_where_it_began() -> None:
    policy = policy_of(8)
    first = send(policy, key("system", "one"))
    policy.loads.ended(first)
    for turns in range(2, 6):
        assert policy.choose(key("system", "one", *map(str, range(turns)))) == (first, "prefix")


def test_an_overloaded_replica_is_not_chosen_for_its_prefix() -> None:
    policy = policy_of(2)
    first = send(policy, key("system"))
    chosen = [policy.choose(key("system"))]
    for _ in range(6):
        policy.loads.began(first)
        chosen.append(policy.choose(key("system")))
    assert chosen[3] == (first, "prefix"), "a load of 4 beside an idle one"
    (other,) = set(policy.ids) - {first}
    assert chosen[4] == (other, "balance"), "a load of 5"


def test_a_busy_cluster_tolerates_more_imbalance() -> None:
    policy = policy_of(2)
    first = send(policy, key("system"))
    (other,) = set(policy.ids) - {first}
    for _ in range(10):
        policy.loads.began(other)
    for _ in range(18):
        policy.loads.began(first)
    assert policy.choose(key("system")) == (first, "prefix"), "19 is 4 + 1.5 * 10"
    policy.loads.began(first)
    assert policy.choose(key("system")) == (other, "balance")


def test_of_replicas_with_the_same_prefix_the_less_loaded_one_serves() -> None:
    policy = policy_of(3)
    for replica in ("r0", "r1"):
        serve(policy, replica, key("system"))
    policy.loads.began("r0")
    assert {policy.choose(key("system")) for _ in range(20)} == {("r1", "prefix")}
    policy.loads.began("r1")
    policy.loads.began("r1")
    assert {policy.choose(key("system")) for _ in range(20)} == {("r0", "prefix")}


def test_a_prefix_that_is_a_small_part_of_a_prompt_does_not_count() -> None:
    policy = policy_of(2, PolicyOptions(min_match=0.5))
    serve(policy, "r0", key("template"))
    assert policy.choose(key("template", "x")).reason == "prefix"
    assert policy.choose(key("template", "x", "y")).reason == "load"


def test_prefixes_of_other_namespaces_do_not_count() -> None:
    policy = policy_of(4)
    serve(policy, "r0", key("system", adapter="docs"))
    assert policy.choose(key("system")).reason == "load"
    assert policy.choose(key("system", salt="team")).reason == "load"
    assert policy.choose(key("system", adapter="docs")) == ("r0", "prefix")


def test_an_adapter_goes_where_it_runs() -> None:
    policy = policy_of(5, r5=ReplicaStats(adapters=("docs",)))
    assert policy.choose(key("new", adapter="docs")) == ("r5", "adapter")
    policy.update({f"r{number}": ReplicaStats(number=1) for number in range(6)})
    assert policy.choose(key("new", adapter="docs")).reason == "load", "it runs there no more"


def test_a_namespace_goes_where_its_statistics_are() -> None:
    policy = policy_of(6)
    first = send(policy, key("one", salt="team"))
    assert policy.choose(key("another", salt="team")) == (first, "namespace")
    assert policy.choose(key("another")).reason == "load", "the base model's is everywhere"


def test_what_a_request_reads_decides_whatever_the_load() -> None:
    policy = policy_of(3)
    for _ in range(100):
        policy.loads.began("r2")
    assert policy.choose(key("x", wanted="r2")) == ("r2", "wanted")
    assert policy.choose(key("x", wanted="gone")).reason == "load"


def test_a_request_is_not_sent_again_to_the_replica_that_failed_it() -> None:
    policy = policy_of(2)
    first = RoutingKey(chain=(b"a",), id="1")
    failed = send(policy, first)
    for _ in range(20):
        again = policy.choose(RoutingKey(chain=(b"a",), id="1", attempt=1))
        assert again.replica != failed
    assert policy_of(1).choose(RoutingKey(id="1", attempt=1)).replica == "r0", "unless there is no other"


def test_requests_without_a_prefix_are_spread_by_load() -> None:
    policy = policy_of(10)
    counts = Counter(send(policy, key(f"prompt {number}")) for number in range(1000))
    assert len(counts) == 10
    assert max(counts.values()) - min(counts.values()) <= 12, "two choices balance"


def test_a_replica_that_is_gone_is_never_chosen() -> None:
    policy = policy_of(2)
    serve(policy, "r0", key("x", adapter="docs"))
    policy.drop("r0")
    assert {policy.choose(key("x", adapter="docs")).replica for _ in range(20)} == {"r1"}
    policy.update({"r2": ReplicaStats()})
    assert {policy.choose(key("x", adapter="docs")).replica for _ in range(20)} == {"r2"}


def test_reports_and_own_requests_are_added_up_once() -> None:
    policy = policy_of(1)
    for _ in range(3):
        policy.loads.began("r0")
    assert policy.loads.load("r0") == 3
    report = ReplicaStats(number=1, num_requests=10, num_waiting=2, kv_usage=0.5)
    policy.update({"r0": report})
    assert policy.loads.load("r0") == 12.5, "what was sent before is in the report"
    policy.loads.began("r0")
    policy.update({"r0": report, "r1": ReplicaStats()})
    assert policy.loads.load("r0") == 13.5, "the same report again changes nothing"
    for _ in range(4):
        policy.loads.ended("r0")
    assert policy.loads.load("r0") == 9.5


def test_as_many_blocks_are_remembered_as_a_cache_may_hold() -> None:
    options = PolicyOptions(block_bytes=64, bytes_per_token=4, max_blocks=1000)
    policy = policy_of(4, options, small=ReplicaStats(cache_tokens=64), none=ReplicaStats(cache_tokens=0))
    assert policy.capacity("small") == 4
    assert policy.capacity("none") == 0, "it keeps no prefixes"
    assert policy.capacity("r0") == 1000 // 6, "the share of one replica"


def test_a_request_counts_at_one_replica_until_it_is_released() -> None:
    policy = policy_of(2)
    policy.hold("1", "r0", key("x"))
    policy.hold("1", "r0", key("x"))
    assert (policy.loads.load("r0"), policy.loads.load("r1")) == (1, 0)
    policy.move("1", "r1", key("x"))
    assert (policy.loads.load("r0"), policy.loads.load("r1")) == (0, 1), "it went to another one"
    policy.release("1")
    policy.release("1")
    policy.move("1", "r1", key("x"))
    assert (policy.loads.load("r1"), policy.running) == (0, {})


def test_memory_is_bounded() -> None:
    policy = policy_of(3, PolicyOptions(max_blocks=300))
    for number in range(12_000):
        send(policy, RoutingKey(namespace=str(number), chain=(b"%d" % number, b"%dx" % number), id=str(number)))
    assert sum(len(blocks) for blocks in policy.prefixes.blocks.values()) <= 300
    assert len(policy.last_of_namespace) == len(policy.last_of_request) == 10_000
    policy.prefixes.check_integrity()


def test_a_choice_among_a_thousand_replicas_takes_no_longer_than_among_ten() -> None:
    def seconds(num_replicas: int) -> float:
        policy = policy_of(num_replicas)
        prompts = [key(*map(str, range(20)), salt=str(number % 50)) for number in range(500)]
        began = time.process_time()
        for prompt in prompts:
            policy.loads.ended(send(policy, prompt))
        return time.process_time() - began

    few, many = min(seconds(10) for _ in range(3)), min(seconds(1000) for _ in range(3))
    assert many < 3 * few
    assert many / 500 < 0.001
