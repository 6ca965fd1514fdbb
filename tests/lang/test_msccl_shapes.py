"""Goal: what the collections of MSCCL, its executor for Azure and RCCL ship is read as it is meant.

Method: files of the same shapes (msccl_shapes.py), for few ranks, are read, proved and interpreted against the
mathematics. docs/LANGUAGE.md names the files.
"""

import pytest

from lang import msccl_shapes as shapes
from lang.meaning import assert_means
from starling.lang.msccl_xml import read

SHAPES = {
    "two-step all-to-all, two nodes": (shapes.two_step_all_to_all(2, 4), "all_to_all", (False,)),
    "two-step all-to-all, three nodes": (shapes.two_step_all_to_all(3, 2), "all_to_all", (False,)),
    "all-to-all": (shapes.all_to_all(4, 2), "all_to_all", (False,)),
    "recursive doubling": (shapes.recursive_doubling(3, 2), "all_gather", (True,)),
    "pairs in one pass": (shapes.pairs_in_one_pass(4, 2), "all_reduce", (True,)),
    "pairs in two passes": (shapes.pairs_in_two_passes(4, 2), "all_reduce", (True,)),
    "pairs of single steps": (shapes.pairs_of_single_steps(4, 2), "all_reduce", (True,)),
    "pairs across": (shapes.pairs_across(2), "all_reduce", (True,)),
    "ring for both places": (shapes.ring_for_both_places(4, 2), "all_reduce", (False, True)),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_shape_of_the_collections(shape: str) -> None:
    file, collective, places = SHAPES[shape]
    for in_place in places:
        assert_means(read(file.text(), in_place=in_place), collective, in_place)
