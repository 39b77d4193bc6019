"""Pipelines as JSON: what is refused, in which words, and what each function is given."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.amesos.experiments import PIPELINES
from functions.dataflow.graph import Pipeline
from penstock.errors import PenstockError
from penstock.systems import FunctionSpec, FunctionSystem
from tests.support.mutations import mutations


def written(functions: dict[str, Any], entry: list[str] | None = None, **more: Any) -> bytes:
    pipeline = {"pipeline": "p", "deadline_s": 1.0, "entry": entry or ["a"], "functions": functions, **more}
    return msgspec.json.encode(pipeline)


def node(*to: str, arguments: list[str] | None = None, service_time_s: float = 0.1) -> dict[str, Any]:
    made: dict[str, Any] = {"service_time_s": service_time_s, "to": list(to)}
    return made if arguments is None else {**made, "arguments": arguments}


DIAMOND = {
    "merge": node(),
    "long": node("merge", service_time_s=0.3),
    "a": node("short", "long"),
    "short": node("merge"),
}


def test_functions_are_in_topological_order_with_the_longest_way_ahead_of_them() -> None:
    pipeline = Pipeline.parse(written(DIAMOND))
    assert pipeline.names == ("a", "long", "short", "merge")
    assert pipeline.graph.total_s == pytest.approx(0.5)
    assert pipeline.graph.remaining_s == pytest.approx([0.4, 0.1, 0.1, 0.0])


def test_a_merge_is_given_an_object_with_each_result_under_its_functions_name() -> None:
    pipeline = Pipeline.parse(written(DIAMOND))
    assert pipeline.body(0, {-1: b'{"in": 1}'}) == b'{"in": 1}'
    results = {-1: b"1", 0: b"2", 1: b'{"l": [1, 2]}', 2: b"\xff\xfe"}
    assert pipeline.body(1, results) == b"2"
    assert msgspec.json.decode(pipeline.body(3, results)) == {"long": {"l": [1, 2]}, "short": {"base64": "//4="}}


def test_arguments_may_be_the_input_and_any_result_of_a_function_before() -> None:
    pipeline = Pipeline.parse(written({"a": node("b"), "b": node("c"), "c": node(arguments=["input", "a"])}))
    assert msgspec.json.decode(pipeline.body(2, {-1: b'{"n": 1}', 0: b"plain text", 1: b"x"})) == {
        "input": {"n": 1},
        "a": "plain text",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (written({"a": node("b"), "b": node("a")}), "a, b wait for each other; break the cycle"),
        (written({"a": node("a")}), "a wait for each other"),
        (written({"a": node("b")}), "'a' sends to 'b', which is not there"),
        (written({"a": node("b", "b"), "b": node()}), "'a' sends to 'b' 2 times"),
        (written({"a": node()}, entry=["z"]), "entry 'z' is not there"),
        (written({"a": node(), "lost": node()}), "'lost' is never reached"),
        (written({"a": node("b"), "b": node()}, entry=["a", "b"]), "entry 'b' waits for other functions"),
        (
            written({**DIAMOND, "merge": node(arguments=["long"])}),
            "'merge' merges 'short' with others but does not take",
        ),
        (
            written({"a": node("b"), "b": node(arguments=["c"]), "c": node()}, entry=["a", "c"]),
            "'c', which does not come",
        ),
        (written({"a": node(arguments=["nobody"])}), "'a' wants the result of 'nobody'; there are input, a"),
        (written({"a": node(arguments=[])}), "'a': arguments .* at least"),
        (written({"a": node()}, deadline_s=0), "deadline_s 0 has to be above 0"),
        (written({"a": node(service_time_s=-1)}), "'a': service_time_s -1"),
        (written({"input": node()}, entry=["input"]), "function 'input' has to be"),
        (written({"a/b": node()}, entry=["a/b"]), "function 'a/b' has to be"),
        (written({}, entry=["a"]), "entry 'a' is not there"),
        (written({"a": {"service_time_s": 1, "too": []}}), "too"),
        (b'{"pipeline": "p"', "not a pipeline"),
    ],
)
def test_a_pipeline_that_cannot_be_run_is_refused_with_the_function_in_question(text: bytes, message: str) -> None:
    with pytest.raises(PenstockError, match=message):
        Pipeline.parse(text)


def test_an_error_in_a_file_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.json"
    with pytest.raises(PenstockError, match=r"pipeline\.json: cannot be read"):
        Pipeline.read(file)
    file.write_bytes(written({"a": node("b")}))
    with pytest.raises(PenstockError, match=r"pipeline\.json: function 'a' sends to 'b'"):
        Pipeline.read(file)


@pytest.mark.parametrize("name", sorted(PIPELINES))
def test_the_pipelines_of_the_paper_are_the_same_from_their_system_as_from_json(name: str) -> None:
    system = PIPELINES[name]  # type: ignore[index]
    ours = Pipeline.of_system(name, system)
    after = {f.name: [g.name for g in system.functions if f.name in g.after] for f in system.functions}
    theirs = Pipeline.parse(
        written(
            {f.name: node(*after[f.name], service_time_s=f.service_time_s) for f in system.functions},
            entry=[system.functions[0].name],
            deadline_s=system.deadline_s,
        )
    )
    assert ours.names == theirs.names and ours.arguments == theirs.arguments
    assert ours.graph.remaining_s == theirs.graph.remaining_s


def test_a_pipeline_without_functions_is_refused() -> None:
    with pytest.raises(PenstockError, match="has no functions"):
        Pipeline.of_system("p", FunctionSystem(functions=(), deadline_s=1))
    with pytest.raises(PenstockError, match="there 2 times"):
        twice = (FunctionSpec(name="a", service_time_s=1), FunctionSpec(name="a", service_time_s=1))
        Pipeline.of_system("p", FunctionSystem(functions=twice, deadline_s=1))


@given(text=st.binary(max_size=100) | mutations(written(DIAMOND)))
def test_any_text_is_a_pipeline_or_is_refused_in_words(text: bytes) -> None:
    try:
        pipeline = Pipeline.parse(text)
    except PenstockError as error:
        assert str(error)
    else:
        assert pipeline.deadline_s > 0 and pipeline.names


@pytest.mark.parametrize("text", [b"\xff", b"[" * 100_000, b'{"pipeline":"\xff"}'], ids=["binary", "deep", "not UTF-8"])
def test_bytes_that_are_no_json_are_refused(text: bytes) -> None:
    with pytest.raises(PenstockError, match="not a pipeline"):
        Pipeline.parse(text)
