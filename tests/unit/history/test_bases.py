"""What a session is judged by."""

import pytest

from dlbench import Error
from dlbench.history import bases

STUDIES = {"s1": "nightly", "s2": "acceptance", "s3": "nightly"}


@pytest.mark.parametrize(
    ("base", "tags", "session"),
    [
        ("last", {}, "last"),
        ("since-change", {}, "since-change"),
        ("s1", {}, "s1"),
        ("good", {"good": "s2"}, "s2"),  # of another study, but there is no other
        ("good", {"good": ["s1", "s2", "of another machine"]}, "s1"),
        ("s1", {"s1": "s3"}, "s3"),
    ],
)
def test_a_base_is_a_word_a_tag_or_a_session(base, tags, session):
    assert bases.named(base, tags, STUDIES, "nightly") == session


def test_a_tag_that_is_not_there_is_refused_with_the_nearest_name():
    with pytest.raises(Error, match=r"no tag 'goood'.*did you mean 'good'.*one of good, old"):
        bases.named("goood", {"good": "s1", "old": "s2"}, STUDIES, "nightly")


def test_a_tag_without_a_session_of_this_machine_or_with_two_is_refused():
    with pytest.raises(Error, match=r"tag good: none of its sessions \(gone\) is in the history"):
        bases.named("good", {"good": ["gone"]}, STUDIES, "nightly")
    with pytest.raises(Error, match="tag good: s1, s3 are all of study nightly"):
        bases.named("good", {"good": ["s1", "s2", "s3"]}, STUDIES, "nightly")
