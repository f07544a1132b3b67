"""Operators on nodes: equal ones once, by the paper's cost; the plan for a cluster is shown without one."""

from __future__ import annotations

import itertools
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from cepheid import pattern as pt
from cepheid.app import cli
from cepheid.deploy.operator_graph import OperatorTree, PlacedOperator, operator_tree
from cepheid.deploy.placement import MESSAGE, STRATEGIES, Placement, Placer, cheapest_node, placement, supported
from cepheid.errors import InputProblem
from cepheid.optimize.core_cost import CompiledModel, PaperModel
from cepheid.optimize.stats import Stats
from cepheid.pattern import EventClass, Pattern

RATES = {name: float(2**at) for at, name in enumerate("ABCDEF")}
STATS = Stats(rates={name.lower(): rate for name, rate in RATES.items()}, total_rate=sum(RATES.values()))


def leaf(name: str) -> EventClass:
    return EventClass(name.lower(), types=(name,))


def tree(core: Pattern, query: str = "q", *, is_rewritten: bool = True) -> OperatorTree:
    return operator_tree(query, core, CompiledModel(STATS), is_rewritten=is_rewritten)


def chain(*names: str) -> Pattern:
    core: Pattern = leaf(names[0])
    for name in names[1:]:
        core = pt.Next(core, leaf(name))
    return core


def test_operators_are_named_by_content() -> None:
    one, other = tree(chain("A", "B", "C"), "p"), tree(chain("A", "B", "D"), "q")
    assert [operator.name for operator in one.operators] == ["(A; B)", "((A; B); C)"]
    placed = placement([one, other], 2)
    assert [(each.operator.name, each.queries) for each in placed.operators] == [
        ("(A; B)", ("p", "q")), ("((A; B); C)", ("p",)), ("((A; B); D)", ("q",)),
    ]  # fmt: skip
    assert len(placement([one, other], 2, "greedy-without-reuse").operators) == 4


def test_a_query_that_runs_already_is_found_as_a_whole() -> None:
    trees = [tree(chain("A", "B", "C"), name) for name in "pqr"]
    placed = placement(trees, 3)
    assert [each.queries for each in placed.operators] == [("p",), ("p", "q", "r")]


def test_unions_are_joined_from_the_rarest_on() -> None:
    """Figure 4's rule: frequent events pass through one union."""
    union = pt.Disj(tuple(leaf(name) for name in "FABC"))
    assert tree(union).operators[-1].name == "(((A | B) | C) | F)"
    issued = pt.Disj((pt.Disj((leaf("F"), leaf("A"))), leaf("B")))
    assert tree(issued, is_rewritten=False).operators[-1].name == "((A | F) | B)"


def test_operands_on_different_nodes_cost_messages() -> None:
    """The paper's δ, whose definition is misprinted."""
    first = PlacedOperator("first", (), 10.0, 0.5)
    second = PlacedOperator("second", ("first",), 1.0, 0.1)
    operators = OperatorTree("q", (first, second))
    here = Placer(2, cheapest_node, reuses=True)
    here.add(operators)
    assert [each.node for each in here.placed] == [0, 0]  # 10 ns of the other are less than 30 ns of messages
    assert Placement("here", 2, tuple(here.placed)).loads == [11.0, 0.0]
    rare = OperatorTree("q", (PlacedOperator("first", (), 10.0, 0.01), second))
    apart = Placer(2, cheapest_node, reuses=True)
    apart.add(rare)
    assert [each.node for each in apart.placed] == [0, 1]
    loads = Placement("apart", 2, tuple(apart.placed)).loads
    assert loads == pytest.approx([10.0 + MESSAGE * 0.005, 1.0 + MESSAGE * 0.005]) and apart.loads == pytest.approx(
        loads
    )


def test_greedy_is_near_the_best_of_all_placements() -> None:
    trees = [tree(chain("C", "D", "E")), tree(chain("E", "F", "A"), "r"), tree(chain("B", "D"), "s")]
    start = placement(trees, 2)

    def busiest(nodes: tuple[int, ...]) -> float:
        moved = [type(each)(each.operator, node, each.queries, each.reads)
                 for each, node in zip(start.operators, nodes, strict=True)]  # fmt: skip
        return max(Placement("any", 2, tuple(moved)).loads)

    best = min(map(busiest, itertools.product(range(2), repeat=len(start.operators))))
    assert best <= max(start.loads) <= 1.5 * best
    assert max(placement(trees, 2, "annealing").loads) <= max(start.loads)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_query_is_placed_and_its_operands_come_first(strategy: str) -> None:
    rng = Random(1)
    trees = [tree(chain(*rng.choices("ABCDEF", k=4)), str(number)) for number in range(30)]
    placed = placement(trees, 4, strategy)
    assert {name for each in placed.operators for name in each.queries} == {str(number) for number in range(30)}
    assert all(number < at for at, each in enumerate(placed.operators) for number in each.reads)
    assert all(0 <= each.node < 4 for each in placed.operators)


def test_the_simulator_counts_the_queries_without_overload() -> None:
    trees = [tree(chain("A", "B"), str(number)) for number in range(100)]
    cpu = trees[0].cpu
    rate = 1e9 / (10.5 * cpu)
    assert supported(trees, rate, Placer(1, cheapest_node, reuses=False)) == 10
    assert supported(trees, rate, Placer(4, cheapest_node, reuses=False)) == 40
    assert supported(trees, rate, Placer(1, cheapest_node, reuses=True)) == 100


def test_unknown_strategies_are_refused() -> None:
    with pytest.raises(InputProblem, match="no placement `gredy`") as refused:
        placement([], 2, "gredy")
    assert "greedy" in str(refused.value)
    with pytest.raises(InputProblem, match="no placement on 0 nodes"):
        placement([], 0)


# --- table 1 ----------------------------------------------------------------------------------------------------------


def test_the_model_of_the_paper() -> None:
    """Table 1, with the burst size of a union as the mean weighted by burst rates."""
    model = PaperModel(Stats(rates={"a": 8.0, "b": 2.0, "c": 4.0}))
    pair = model.of(pt.Next(leaf("A"), leaf("B")))
    assert (pair.rate, pair.detection, pair.burst_size, pair.burst_rate) == (8.0, 0.625, 4.0, 2.0)
    assert pair.cost == 8.0 + 0.5 / 0.125 * 1 * 1 * 2.0 + 0.0
    other = model.of(pt.Next(leaf("B"), leaf("A")))
    assert other.cost == 2.0 + 0.125 / 0.5 * 8.0 + 6.0
    union = model.of(pt.Disj((pt.Next(leaf("A"), leaf("B")), leaf("C"))))
    assert union.burst_size == (4.0 * 2.0 + 1.0 * 4.0) / 6.0 and union.rate == 12.0 and union.burst_rate == 6.0


# --- the command line -------------------------------------------------------------------------------------------------


def test_the_plan_for_a_cluster_is_shown(tmp_path: Path) -> None:
    folder = tmp_path / "queries"
    folder.mkdir()
    (folder / "one.eql").write_text("SELECT * FROM (A a; B b); C c")
    (folder / "two.eql").write_text("SELECT * FROM (A x; B y); A z")
    (folder / "keyed.eql").write_text("SELECT * FROM A a; B b WHERE FILTER(a.k = b.k)")
    (folder / "other.sase").write_text("EVENT SEQ(A a, B b) WITHIN 9 units")
    rows = [{"type": "ABC"[i % 3], "ts": i, "k": i % 5} for i in range(60)]
    path = tmp_path / "events.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path)
    arguments = ["deploy", str(folder), "--input", str(path), "--plan-only", "--nodes", "40"]
    shown = CliRunner().invoke(cli.app, arguments)
    assert shown.exit_code == 0, shown.output
    words = " ".join(shown.output.replace("│", " ").split())
    assert "placement on 40 nodes, greedy" in words and "spread over all nodes by k: keyed" in words
    assert "(A; B)" in words and "for one, two" in words
    table = [line for line in shown.output.splitlines() if line.strip()[:2].strip().isdigit()]
    assert len(table) == 40
    picture = CliRunner().invoke(cli.app, [*arguments, "--format", "svg", "--placement", "round-robin"])
    assert picture.output.startswith("<svg") and "round-robin" in picture.output
    assert "-- two" in picture.output and "WITHIN 9 units" in picture.output  # with the texts of the queries
    (folder / "equal.sase").write_text("EVENT SEQ(A x, B y) WITHIN 9 units")
    again = " ".join(CliRunner().invoke(cli.app, arguments).output.split())
    assert "of equal: " in again and "for equal, other" in again and "of other: " not in again
    refused = CliRunner().invoke(cli.app, [a for a in arguments if a != "--plan-only"])
    assert refused.exit_code != 0 and "--plan-only --nodes N" in refused.output
