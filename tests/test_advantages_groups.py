"""Group statistics: what every estimator's baseline is made of."""

from __future__ import annotations

import pytest
import torch

from verl_ext.advantages.groups import group_count, group_mean, group_std, leave_one_out_mean

close = torch.testing.assert_close

# Three groups: 2 holds 1, 2, 6; 0 holds 4, 8; 1 holds 5 alone.
GROUP = torch.tensor([[2, 0, 2], [1, 0, 2]])
VALUES = torch.tensor([[1.0, 4.0, 2.0], [5.0, 8.0, 6.0]])
WITHOUT_8_AND_5_AND_6 = torch.tensor([[True, True, True], [False, False, False]])


@pytest.mark.parametrize(
    ("statistic", "expected", "expected_of_the_weighted"),
    [
        # Weighted: 2 holds 1, 2; 0 holds 4; 1 holds nothing.
        (group_count, [[3, 2, 3], [1, 2, 3]], [[2, 1, 2], [0, 1, 2]]),
        (group_mean, [[3, 6, 3], [5, 6, 3]], [[1.5, 4, 1.5], [0, 4, 1.5]]),
        # 2: (4 + 1 + 9) / 2 = 7; 0: (4 + 4) / 1 = 8. Weighted, 2: (0.25 + 0.25) / 1 = 0.5
        (group_std, [[7**0.5, 8**0.5, 7**0.5], [0, 8**0.5, 7**0.5]], [[0.5**0.5, 0, 0.5**0.5], [0, 0, 0.5**0.5]]),
        # The others of 1 are 2, 6; of 2: 1, 6; of 6: 1, 2. Weighted, the others of 6 are still 1, 2
        (leave_one_out_mean, [[4, 8, 3.5], [0, 4, 1.5]], [[2, 0, 1], [0, 4, 1.5]]),
    ],
    ids=lambda given: getattr(given, "__name__", ""),
)
def test_each_element_gets_the_statistic_of_its_group(statistic, expected, expected_of_the_weighted):
    close(statistic(VALUES, GROUP), torch.tensor(expected, dtype=torch.float32))
    weighted = torch.tensor(expected_of_the_weighted, dtype=torch.float32)
    close(statistic(VALUES, GROUP, WITHOUT_8_AND_5_AND_6), weighted)
    close(statistic(VALUES, GROUP, WITHOUT_8_AND_5_AND_6.float()), weighted)


def test_a_weight_of_two_counts_an_element_twice():
    # 1, 1, 4: mean 2, variance (1 + 1 + 4) / 2; the others of the 1 are 4, of the 4 are 1 and 1.
    values, group, weight = torch.tensor([1.0, 4.0]), torch.tensor([0, 0]), torch.tensor([2.0, 1.0])
    close(group_mean(values, group, weight), torch.tensor([2.0, 2.0]))
    close(group_std(values, group, weight), torch.tensor([3**0.5, 3**0.5]))
    close(leave_one_out_mean(values, group, weight), torch.tensor([4.0, 1.0]))


@pytest.mark.parametrize("value", [0.7, 0.1, 1e6 + 0.1, -3.3])
def test_equal_values_lie_exactly_on_their_mean(value):
    values, group = torch.full((7,), value), torch.zeros(7, dtype=torch.int64)
    assert torch.equal(group_mean(values, group), values)
    assert torch.equal(leave_one_out_mean(values, group), values)
    assert torch.equal(group_std(values, group), torch.zeros(7))


def test_a_statistic_keeps_the_type_of_its_values():
    for statistic in (group_count, group_mean, group_std, leave_one_out_mean):
        assert statistic(VALUES, GROUP).dtype == torch.float32
        assert statistic(VALUES.double(), GROUP).dtype == torch.float64
