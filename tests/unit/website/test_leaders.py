"""leaders: machines are ranked only among conditions that are comparable."""

from dlbench.pages import page_text
from dlbench.website import leaders, site_data
from support.history import made_histories as made


def test_equal_global_batches_are_compared_and_what_else_differs_is_named(tmp_path):
    on_two = made.fields(batch_per_device=8, devices_per_node=2, strategy="mirrored")
    made.add(tmp_path, 0, {made.fields(batch_per_device=16): [100.0]}, machine="EPYC")
    made.add(tmp_path, 0, {on_two: [150.0]}, machine="Xeon")
    made.add(tmp_path, 0, {made.fields(batch_per_device=32): [900.0]}, machine="Faster")
    site = site_data.read(tmp_path, {})
    (group,) = leaders.groups(site)
    assert [one.machine.hardware[:8] for one in group.series] == ["2 x Xeon", "2 x EPYC"]
    assert {"strategy", "devices_per_node", "batch_per_device"} == set(group.differing)
    text = page_text.text(leaders.page(site), 200)
    assert "lenet5, synthetic, batch 16 in all" in text
    assert "mirrored" in text and "0.667" in text
