"""Tree and beam search: the arithmetic by hand, a toy policy whose best path is known, budgets, and the same result however batched."""

from __future__ import annotations

import math

import pytest
from toy import LINE, PROMPT, STOP, A, B, C, ToyEngine, decode, grade, lines, problems, reader, render, share_of_b, stepper

from sharpen.errors import ModelError, RecipeError, RewardError
from sharpen.rollout.engine import Sampling
from sharpen.rollout.torch_engine import TorchEngine
from sharpen.search.beam import BeamSearch
from sharpen.search.compare import RULES, _read, chosen, score
from sharpen.search.judges import Asked, Plain, Rollouts
from sharpen.search.steps import Step, Stepper, step_ends
from sharpen.search.tree import IDLE, Found, Leaf, Node, Purse, Rollout, Tree, TreeSearch, leaf_of
from tiny import END_OF_TEXT, IM_END, tiny_model, tiny_tokenizer

RARE_B = lines(3, {A: 0.65, B: 0.35})


def tree_search(policy=RARE_B, value=share_of_b, *, seed: int = 0, width: int = 4, **limits) -> TreeSearch:
    return TreeSearch(stepper(policy, **limits), Plain(value, "toy"), render, seed=seed, width=width)


def all_b(problem, prompt, completions) -> list[float]:
    return [float("a" not in decode(tokens)) for tokens in completions]


def shown(found) -> list:
    return [(one.problem.id, one.leaves, one.tokens, one.nodes, one.ended) for one in found]


def test_puct_and_backup_by_hand() -> None:
    root = Node()
    # four samples, of which two are equal
    a, b, c = root.add([Step((A, LINE), "open"), Step((B, LINE), "open"), Step((A, LINE), "open"), Step((C, LINE), "open")])
    assert (root.samples, root.drawings, [one.drawn for one in (a, b, c)]) == (4, 1, [2, 1, 1])
    assert [one.score(1.5) for one in (a, b, c)] == [0.0, 0.0, 0.0]  # nothing tried: U = 0 and Q = the value, not known yet
    for node, value in ((a, 0.5), (b, 0.25), (c, 1.0)):
        node.value = value
        node.backup(value)
    assert (root.visits, root.total) == (3, 1.75)
    # U = 1.5 · P · √3 / (1 + 1), P = 2/4, 1/4, 1/4
    assert a.score(1.5) == pytest.approx(0.5 + 1.5 * 0.5 * math.sqrt(3) / 2)  # 1.1495
    assert b.score(1.5) == pytest.approx(0.25 + 1.5 * 0.25 * math.sqrt(3) / 2)  # 0.5748
    assert c.score(1.5) == pytest.approx(1.0 + 1.5 * 0.25 * math.sqrt(3) / 2)  # 1.3248
    assert root.best(1.5) is c
    # two children below c, worth 0 and 0.5: N(c) = 3, W(c) = 1.5, Q(c) = 0.5
    d, e = c.add([Step((A, LINE), "open"), Step((STOP,), "finished")])
    d.backup(0.0)
    e.backup(0.5)
    assert (c.visits, c.total, root.visits, root.total) == (3, 1.5, 5, 2.25)
    assert c.score(1.5) == pytest.approx(0.5 + 1.5 * 0.25 * math.sqrt(5) / (1 + 3))  # 0.7096
    assert a.score(1.5) == pytest.approx(0.5 + 1.5 * 0.5 * math.sqrt(5) / (1 + 1))  # 1.3385
    assert root.best(1.5) is a
    assert e.tokens == (C, LINE, STOP)


def test_a_node_is_drawn_from_again_when_it_was_visited_often() -> None:
    tree = Tree(problems(1)[0], (PROMPT,), Purse(1000, 4), width=2, exploration=1.0, reserve=0)
    assert tree.select() is tree.root
    fresh = tree.grow(tree.root, [Step((STOP,), "finished"), Step((STOP,), "finished")])
    assert [one.drawn for one in fresh] == [2]
    fresh[0].value = 0.75
    fresh[0].backup(0.75)
    # the only leaf is finished: it is visited until N(root) = 2 · (1 + 1)² = 8, and nothing is spent on that
    assert tree.select() is tree.root
    assert (tree.root.visits, fresh[0].visits, fresh[0].total) == (8, 8, 6.0)
    assert tree.purse.spent == 2
    # the same again is no new node, and 2 · (2 + 1)² = 18 is the next time
    assert tree.grow(tree.root, [Step((STOP,), "finished"), Step((STOP,), "finished")]) == []
    assert fresh[0].drawn == 4
    assert tree.select() is tree.root
    assert tree.root.visits == 18


def test_a_step_that_the_limit_cuts_is_worth_nothing_and_nobody_is_asked() -> None:
    tree = Tree(problems(1)[0], (PROMPT,), Purse(1000, 4), width=2, exploration=1.0, reserve=0)
    assert tree.grow(tree.root, [Step((A, A, A), "cut")]) == []
    assert (tree.root.visits, tree.root.total, tree.purse.spent) == (1, 0.0, 3)
    assert tree.found().leaves == ()


def test_the_best_path_is_found_where_samples_hardly_ever_take_it() -> None:
    # a completion is `bbb` with chance 0.35³ = 0.043 and `aaa` with 0.27: the more of them vote, the less is it chosen
    found = tree_search(value=all_b).run(problems(10), 200)
    answers = _read(found, reader())
    assert [chosen(one, own) for one, own in zip(found, answers, strict=True)] == [["bbb"]] * 10
    assert {rule: sum(score(one, own, rule) for one, own in zip(found, answers, strict=True)) for rule in RULES} == {
        "vote": 10,
        "best": 10,
        "visits": 10,
    }
    beam = BeamSearch(stepper(RARE_B), Plain(share_of_b, "toy"), render, seed=0, width=4, beams=2).run(problems(10), 200)
    right = [score(one, own, "best") for one, own in zip(beam, _read(beam, reader()), strict=True)]
    assert sum(right) >= 8


def test_without_a_telling_value_the_vote_follows_the_policy() -> None:
    # each leaf votes with its share of the policy's samples, so that drawing rare ones does not make them win
    flat = lines(3, {A: 0.8, B: 0.2})
    found = tree_search(flat, lambda problem, prompt, completions: [0.5] * len(completions)).run(problems(20), 200)
    answers = _read(found, reader())
    voted = [chosen(one, own) for one, own in zip(found, answers, strict=True)]
    assert sum(own == ["aaa"] for own in voted) >= 18
    assert all(sum(leaf.share for leaf in one.leaves) <= 1 + 1e-9 for one in found)


def test_shares_by_hand() -> None:
    root = Node()
    a, b = root.add([Step((A, LINE), "open"), Step((B, LINE), "open"), Step((A, LINE), "open"), Step((A, LINE), "open")])
    (end,) = a.add([Step((STOP,), "finished"), Step((STOP,), "finished")])
    other, cut = b.add([Step((STOP,), "finished"), Step((A,), "cut")])
    end.value, other.value = 0.25, 1.0
    leaves = [leaf_of(end), leaf_of(other), *Rollout(b, ((B, LINE, A, STOP), (B, LINE, C, STOP))).leaves()]
    assert [leaf.share for leaf in leaves] == [0.75, 0.25 * 0.5, 0.125, 0.125]
    assert cut.path_share == 0.125
    # a: 0.25 · 0.75 = 0.1875; b: 1 · 0.125
    found = Found(problem=problems(1)[0], leaves=tuple(leaves[:2]), tokens=0, nodes=4)
    assert chosen(found, [("a", False), ("b", True)]) == ["a"]
    assert {rule: score(found, [("a", False), ("b", True)], rule) for rule in RULES} == {"vote": 0.0, "visits": 0.5, "best": 1.0}


@pytest.mark.parametrize("budget", [1, 3, 7, 20, 50, 101])
def test_the_budget_is_exceeded_by_less_than_one_draw(budget: int) -> None:
    for make in (
        lambda judge: TreeSearch(stepper(RARE_B), judge, render, seed=0, width=4),
        lambda judge: BeamSearch(stepper(RARE_B), judge, render, seed=0, width=4, beams=3),
    ):
        plain = make(Plain(share_of_b, "toy"))
        found = plain.run(problems(5), budget)
        assert all(budget <= one.tokens < budget + 4 for one in found)
        assert sum(one.tokens for one in found) == plain.stepper.engine.generated  # nothing is generated that is not counted
        policy = ToyEngine(RARE_B, [STOP])
        judge = Rollouts(policy, reader(), rollouts=2, sampling=Sampling(max_new_tokens=12), seed=0)
        search = make(judge)
        found = search.run(problems(5), budget)
        assert all(budget <= one.tokens < budget + 4 + judge.most_tokens for one in found)
        assert sum(one.tokens for one in found) == search.stepper.engine.generated + policy.generated


@pytest.mark.parametrize("kind", [TreeSearch, BeamSearch])
def test_the_same_result_alone_or_beside_others_and_another_with_another_seed(kind) -> None:
    def run(chosen, seed=0):
        judge = Rollouts(ToyEngine(RARE_B, [STOP]), reader(), rollouts=2, sampling=Sampling(max_new_tokens=12), seed=seed)
        return shown(kind(stepper(RARE_B), judge, render, seed=seed, width=3).run(chosen, 150))

    every = problems(4)
    together = run(every)
    assert together == run(every)
    assert [run([one])[0] for one in every] == together
    assert run(list(reversed(every))) == list(reversed(together))
    assert run(every, seed=1) != together
    assert len({str(one[1:]) for one in together}) > 1  # equal problems draw apart


def test_problems_without_a_finished_answer() -> None:
    def endless(text: str) -> dict[int, float]:
        return {A: 0.5, LINE: 0.5}

    for search in (tree_search(endless), BeamSearch(stepper(endless), Plain(share_of_b, "toy"), render, seed=0)):
        found = search.run(problems(2), 100)
        assert all(one.leaves == () for one in found)
        assert [score(one, [], rule) for one in found for rule in RULES] == [0.0] * 6
        assert chosen(found[0], []) == []
        assert all(one.tokens < 104 for one in found)


def test_empty_completions_have_no_answer_and_exhaust_the_tree() -> None:
    found = tree_search(lambda text: {STOP: 1.0}).run(problems(1), 10_000)[0]
    assert found.ended == "exhausted"
    assert found.tokens < 10_000
    assert found.nodes == 1
    (leaf,) = found.leaves
    assert leaf.tokens == (STOP,)
    assert leaf.visits > 0.9 * IDLE
    answers = _read([found], reader())[0]
    assert answers == [(None, False)]
    assert [score(found, answers, rule) for rule in RULES] == [0.0, 0.0, 0.0]


def test_completions_of_one_step() -> None:
    found = tree_search(lambda text: {STOP: 1.0} if text else {A: 0.5, B: 0.5}).run(problems(1, "b"), 60)[0]
    assert {leaf.tokens for leaf in found.leaves} == {(A, STOP), (B, STOP)}
    answers = _read([found], reader())[0]
    assert score(found, answers) == 1.0  # b is worth 1 and a 0
    assert chosen(found, answers) == ["b"]


def test_a_step_that_reaches_its_limit_ends_there_and_the_completion_at_its_own() -> None:
    def long(text: str) -> dict[int, float]:
        return {A: 1.0} if len(text) < 5 else {STOP: 1.0}

    own = stepper(long, max_step_tokens=3, max_new_tokens=7)
    assert own.sample([(PROMPT,)], [()], [[1]]) == [[Step((A, A, A), "open")]]
    assert own.sample([(PROMPT,)], [(A, A, A)], [[1]]) == [[Step((A, A, STOP), "finished")]]
    assert stepper(long, max_step_tokens=3, max_new_tokens=5).sample([(PROMPT,)], [(A, A, A)], [[1]]) == [[Step((A, A), "cut")]]
    assert stepper(long, max_step_tokens=9, max_new_tokens=6).sample([(PROMPT,)], [()], [[1]]) == [[Step((A,) * 5 + (STOP,), "finished")]]
    found = tree_search(long, value=lambda p, q, c: [0.5] * len(c), max_step_tokens=3, max_new_tokens=7).run(problems(1, "aaaaa"), 30)[0]
    assert [leaf.tokens for leaf in found.leaves] == [(A,) * 5 + (STOP,)]


def test_one_batch_for_many_problems() -> None:
    search = tree_search()
    search.run(problems(6), 16)
    assert search.stepper.engine.calls[0] == (24, 4)  # six problems, four steps each


def test_a_small_budget_ends_with_an_answer() -> None:
    # a completion takes 7 tokens and its limit is 12, so all of the budget is kept for one: 3 steps of 2 tokens, and the end
    found = tree_search().run(problems(8), 8)
    assert all(len(one.leaves) >= 1 for one in found)


def test_agreement_of_rollouts_by_hand() -> None:
    judge = Rollouts(ToyEngine(lines(1, {A: 1.0}), [STOP]), reader(), rollouts=2, sampling=Sampling(max_new_tokens=12), seed=0)
    one, two = problems(2)
    # from nothing, a line of `a`: 3 tokens each; a finished one is its own answer
    first = judge([Asked(one, (PROMPT,), ((), (B, LINE, STOP)), 0), Asked(two, (PROMPT,), ((B, LINE, STOP),), 0)])
    assert first[0].values == (1.0, 0.0)  # a, a and b: the most common is a
    assert first[0].tokens == 6
    assert first[0].finished == ((0, (A, LINE, STOP)), (0, (A, LINE, STOP)))
    assert first[1].values == (1.0,)  # another problem counts apart
    assert (first[1].tokens, first[1].finished) == (0, ())
    # two more of b: a, a, b, b, b
    assert judge([Asked(one, (PROMPT,), ((B, LINE, STOP), (B, LINE, STOP)), 1)])[0].values == (1.0, 1.0)
    # one more a: three each, so every vote is worth a half
    assert judge([Asked(one, (PROMPT,), ((A, LINE, STOP),), 2)])[0].values == (0.5,)
    # what has no answer agrees with nobody
    assert judge([Asked(one, (PROMPT,), ((STOP,),), 3)])[0].values == (0.0,)
    assert judge([Asked(problems(3)[2], (PROMPT,), ((STOP,),), 0)])[0].values == (0.0,)


def test_the_oracle_alone_knows_the_truth_and_is_named_so() -> None:
    engine, settings = ToyEngine(lines(1, {A: 1.0}), [STOP]), Sampling(max_new_tokens=12)
    oracle = Rollouts(engine, reader(), rollouts=2, sampling=settings, seed=0, oracle=True)
    assert oracle.name == "oracle"
    assert oracle([Asked(problems(1, "b")[0], (PROMPT,), ((), (B, LINE, STOP)), 0)])[0].values == (0.0, 1.0)

    def truthless(problem, text):
        verdict = grade(problem, text)
        return type(verdict)("unscorable", "nobody may look", verdict.extracted)

    blind = reader()
    blind._grader = truthless
    plain = Rollouts(engine, blind, rollouts=2, sampling=settings, seed=0)
    assert plain.name == "rollouts"
    assert plain([Asked(problems(1, "b")[0], (PROMPT,), ((), (B, LINE, STOP)), 0)])[0].values == (1.0, 0.0)


def test_values_that_are_none() -> None:
    asked = [Asked(problems(1)[0], (PROMPT,), ((A,), (B,)), 0)]
    for values, match in (([0.5], "expected 2 values, got 1"), ([0.5, 1.5], r"\[0, 1\], got 1.5"), ([0.5, math.nan], "got nan")):
        with pytest.raises(RewardError, match=match):
            Plain(lambda p, q, c, values=values: values, "mine")(asked)
    assert Plain(share_of_b, "mine")([Asked(problems(1)[0], (PROMPT,), (), 0)])[0].values == ()
    with pytest.raises(RecipeError, match="width is 0"):
        tree_search(width=0)


def test_rollouts_vote_where_no_step_has_finished() -> None:
    only_a = lines(3, {A: 1.0})
    judge = Rollouts(ToyEngine(only_a, [STOP]), reader(), rollouts=2, sampling=Sampling(max_new_tokens=12), seed=0)
    # one draw of two tokens, and two rollouts of the five that are left
    found = TreeSearch(stepper(only_a), judge, render, seed=0, width=4).run(problems(1, "aaa"), 1)[0]
    assert found.tokens == 2 + 2 * 5
    assert found.leaves == (Leaf(tokens=(A, LINE, A, LINE, A, LINE, STOP), value=1.0, share=0.5),) * 2
    assert score(found, _read([found], reader())[0]) == 1.0


def test_steps_of_a_real_model_end_at_its_line_ends() -> None:
    tokenizer = tiny_tokenizer()
    line = tokenizer("\n", add_special_tokens=False).input_ids[0]
    assert step_ends(tokenizer) == {line}
    with pytest.raises(ModelError, match="no token"):
        step_ends(tokenizer, "ab")
    with pytest.raises(ModelError, match="no token"):
        step_ends(tokenizer, "")
    model, prompt = tiny_model(len(tokenizer)), tuple(tokenizer("What is 2 + 2?", add_special_tokens=False).input_ids)
    own = Stepper.of_model(
        model, tokenizer, [IM_END, END_OF_TEXT], separator="\n", max_rows=8, max_step_tokens=20, max_new_tokens=60, temperature=1.0
    )
    seeds = list(range(40))
    steps = own.sample([prompt], [()], [seeds])[0]
    whole = TorchEngine(model, [IM_END, END_OF_TEXT]).sample([prompt], [seeds], Sampling(max_new_tokens=20))[0]
    assert {step.state for step in steps} == {"open", "finished"}
    for step, one in zip(steps, whole, strict=True):  # the same draws: what a step has is what the completion begins with
        assert one.tokens[: len(step.tokens)] == step.tokens
        assert line not in step.tokens[:-1]
        assert (step.state == "finished") == (step.tokens[-1] in (IM_END, END_OF_TEXT))
    assert any(step.tokens[-1] == line for step in steps)
    found = [
        TreeSearch(own, Plain(lambda p, q, c: [0.5] * len(c), "flat"), lambda problem: prompt, seed=3, width=3).run(some, 120)
        for some in (problems(3), problems(1))
    ]
    assert shown(found[0])[:1] == shown(found[1])
