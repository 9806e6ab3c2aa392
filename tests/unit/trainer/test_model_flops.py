"""The arithmetic that all frameworks' counts of FLOPs share."""

import pytest

from dlbench.trainer import model_flops
from dlbench.trainer.model_flops import Tally


def test_a_multiply_add_is_two_operations_and_counts_as_often_as_its_part_is_done():
    tally, whole = Tally(), Tally()
    tally.add(multiply_adds=12, values=7)
    tally.add(multiply_adds=1, values=2, times=3)
    assert tally.total() == (30, 13, [], 0)
    whole.include(tally, times=20)
    assert whole.total() == (600, 260, [], 0)


def test_of_a_model_with_a_layer_without_a_rule_nothing_is_known():
    whole, part = Tally(), Tally()
    whole.add(multiply_adds=5, values=3)
    part.add_unknown("own (Own)", "there is no rule for it")
    part.add_unknown("own (Own)", "there is no rule for it")
    whole.include(part, times=2)
    assert whole.total() == (None, None, ["own (Own): there is no rule for it"], None)


def test_what_the_backward_pass_does_again_is_counted_apart():
    block, whole = Tally(), Tally()
    block.add(multiply_adds=5, values=3)
    whole.add(multiply_adds=7, values=1)
    whole.add(multiply_adds=2, values=1, recomputed=True)
    whole.include(block, recomputed=True)
    assert whole.total() == (28, 5, [], 14)
    outer = Tally()
    outer.include(whole, times=2)
    assert outer.total().recomputed_per_item == 28


def test_of_many_layers_without_a_rule_a_few_are_named():
    tally = Tally()
    for number in range(100):
        tally.add_unknown(f"own_{number} (Own)", "x" * 1000)
    assert len(tally.total().unknown) == model_flops.MAX_REASONS
    assert max(map(len, tally.total().unknown)) < 200


@pytest.mark.parametrize(
    ("equation", "first", "second", "counted"),
    [
        ("ij,jk->ik", (2, 3), (3, 4), (24, 8)),
        ("abc,cde->abde", (1, 7, 6), (6, 2, 3), (7 * 6 * 2 * 3, 7 * 2 * 3)),
        ("...x,xy->...y", (1, 5, 8), (8, 3), (5 * 8 * 3, 15)),
        ("bqhd, bkhd -> bhqk", (1, 9, 2, 4), (1, 5, 2, 4), (2 * 9 * 5 * 4, 2 * 9 * 5)),
        ("i,j->ij", (3,), (4,), (12, 12)),
    ],
)
def test_a_sum_over_indices_has_a_multiply_add_for_each_value_of_all(
    equation, first, second, counted
):
    assert model_flops.einsum(equation, first, second) == counted


def test_a_sum_over_indices_of_other_shapes_has_no_rule():
    with pytest.raises(ValueError, match="zip"):
        model_flops.einsum("ij,jk->ik", (2, 3), (3, 4, 5))
    with pytest.raises(ValueError, match="zip"):
        model_flops.einsum("ij,jk,kl->il", (2, 3), (3, 4))


def test_attention_is_two_products_of_queries_and_keys():
    # GPT-2's, of 1024 positions: 4 x positions x width a token and layer (PaLM, appendix B).
    multiply_adds = model_flops.attention(1, 12, 1024, 1024, 64, 64)
    assert 2 * multiply_adds == 1024 * (4 * 1024 * 768)
