"""The table of prefixes: what it finds, what it forgets, and that it stays bounded."""

from __future__ import annotations

from random import Random

from specserve_ray.prefixes import NO_MATCH, PrefixTable

MANY = 1000


def chain(*names: str) -> tuple[bytes, ...]:
    """Hashes of a prompt: each name stands for all before it."""
    return tuple(" ".join(names[: index + 1]).encode() for index in range(len(names)))


def test_the_longest_known_prefix_names_all_that_have_it() -> None:
    table = PrefixTable()
    table.add("a", chain("x", "y", "z"), MANY)
    table.add("b", chain("x", "y"), MANY)
    assert table.longest(chain("x", "y", "z", "w")) == (3, ("a",))
    found = table.longest(chain("x", "y", "q"))
    assert (found.num_blocks, set(found.replicas)) == (2, {"a", "b"})


def test_a_prompt_that_begins_otherwise_matches_nothing() -> None:
    table = PrefixTable()
    table.add("a", chain("x", "y"), MANY)
    assert table.longest(chain("y", "x")) == NO_MATCH
    assert table.longest(()) == NO_MATCH


def test_the_ends_of_old_prompts_are_forgotten_before_their_beginnings() -> None:
    table = PrefixTable()
    table.add("a", chain("x", "y", "z"), 4)
    table.add("a", chain("p", "q"), 4)
    assert table.longest(chain("x", "y", "z")).num_blocks == 2
    assert table.longest(chain("p", "q")).num_blocks == 2
    table.check_integrity()


def test_a_prompt_that_is_longer_than_the_table_is_kept_as_far_as_it_fits() -> None:
    table = PrefixTable()
    table.add("a", chain("x", "y", "z"), 2)
    assert table.longest(chain("x", "y", "z")).num_blocks == 2
    table.add("a", chain("x", "y", "z"), 0)
    assert table.longest(chain("x")) == NO_MATCH


def test_a_replica_that_is_gone_holds_nothing() -> None:
    table = PrefixTable()
    table.add("a", chain("x", "y"), MANY)
    table.add("b", chain("x"), MANY)
    table.drop("a")
    assert table.longest(chain("x", "y")) == (1, ("b",))
    table.drop("b")
    assert not table.holders
    assert not table.blocks


def test_the_maps_agree_after_any_order_of_calls() -> None:
    table, random = PrefixTable(), Random(3)
    for _ in range(3000):
        replica = random.choice("abcd")
        if random.random() < 0.02:
            table.drop(replica)
        else:
            table.add(replica, chain(*random.choices("xyz", k=random.randint(0, 6))), random.choice((3, 20)))
        assert len(table.blocks.get(replica, ())) <= 20
    table.check_integrity()
