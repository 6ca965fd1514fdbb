"""Goal: MSCCL XML of every dialect becomes a right plan, and plans become XML that means the same.

Method: XML written here, for algorithms that everybody knows, in the words of each dialect; what is read is proved and
interpreted against the mathematics. Plans of plans/ are written, read back and checked likewise. Wrong files are
refused with the place of the mistake.
"""

from xml.etree import ElementTree

import pytest
from starling.plans import program

from lang.meaning import assert_means
from programs.cases import ALWAYS_APART, NAMES, make
from starling import ir
from starling.lang import PostconditionError
from starling.lang.msccl_blocks import XmlError
from starling.lang.msccl_write import write
from starling.lang.msccl_xml import NO_LIMIT, read


def step(s, kind, src, dst, count=1, wait=(-1, -1), dependents=0) -> str:
    return (
        f'<step s="{s}" type="{kind}" srcbuf="{src[0]}" srcoff="{src[1:]}" dstbuf="{dst[0]}" dstoff="{dst[1:]}" '
        f'cnt="{count}" depid="{wait[0]}" deps="{wait[1]}" hasdep="{dependents}"/>'
    )


def ring_all_reduce(ranks: int, head: str) -> str:
    """In place, one chunk for each rank; sums are passed on without a store (rrs) until they are complete."""
    text = head
    for r in range(ranks):
        text += f'<gpu id="{r}" i_chunks="{ranks}" o_chunks="0" s_chunks="0">'
        text += f'<tb id="0" send="{(r + 1) % ranks}" recv="{(r - 1) % ranks}" chan="0">'

        def at(back: int, rank: int = r) -> str:
            return f"i{(rank - back) % ranks}"

        steps = [step(0, "s", at(0), at(0))]
        steps += [step(s, "rrs", at(s), at(s)) for s in range(1, ranks - 1)]
        steps.append(step(ranks - 1, "rrcs", at(ranks - 1), at(ranks - 1)))
        steps += [step(ranks + s, "rcs", at(s), at(s)) for s in range(ranks - 2)]
        steps.append(step(2 * ranks - 2, "r", at(ranks - 2), at(ranks - 2)))
        text += "".join(steps) + "</tb></gpu>"
    return text + "</algo>"


DIALECTS = {
    "msccl-tools": '<algo name="ring" proto="Simple" nchannels="1" nchunksperloop="4" ngpus="4" coll="allreduce" '
    'inplace="1">',
    "azure": '<algo name="ring" proto="LL" nchannels="1" nchunksperloop="4" ngpus="4" coll="allreduce" inplace="1" '
    'outofplace="0" minBytes="0" maxBytes="65536">',
    "rccl": '<algo name="ring" nchannels="1" nchunksperloop="4" proto="LL128" ngpus="4" coll="allreduce" inplace="1" '
    'outofplace="1" nthreadblocks="1" maxcount="1" redop="sum">',
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_ring_of_every_dialect(dialect: str) -> None:
    plan = read(ring_all_reduce(4, DIALECTS[dialect]))
    assert_means(plan, "all_reduce", True)
    names = [i.opcode.name for i in plan.ranks[0].blocks[0].instructions]
    assert names.count("recv_reduce_send") == 2
    assert plan.ranks[0].scratch_chunks == 0


def test_both_ways_where_the_file_serves_both() -> None:
    text = ring_all_reduce(4, DIALECTS["rccl"])
    with pytest.raises(PostconditionError):  # this one leaves its result in the input
        read(text, in_place=False)
    with pytest.raises(XmlError, match="in place; read it as it is"):
        read(ring_all_reduce(4, DIALECTS["azure"]), in_place=False)


def test_reduce_scatter_in_both_spellings_with_waits_between_blocks() -> None:
    """All pairs: each contribution comes to a block of its own, the sums are made in block 0, led by nops."""
    ranks = 3
    for spelling in ("reducescatter", "reduce_scatter"):
        text = f'<algo name="pairs" nchunksperloop="{ranks}" ngpus="{ranks}" coll="{spelling}" inplace="0">'
        for r in range(ranks):
            text += f'<gpu id="{r}" i_chunks="{ranks}" o_chunks="1" s_chunks="{ranks}">'
            peers = [p for p in range(ranks) if p != r]
            for number, peer in enumerate(peers):
                text += f'<tb id="{number}" send="{peer}" recv="{peer}" chan="0">'
                text += step(0, "s", f"i{peer}", f"s{r}") + step(
                    1, "r", f"i{r}", f"s{peer}", 1, (-1, -1), number
                )
                if number == 0:
                    text += step(2, "cpy", f"i{r}", "o0") + step(3, "re", f"s{peer}", "o0")
                    text += step(4, "nop", "i0", "i0", 1, (1, 1)) + step(5, "re", f"s{peers[1]}", "o0")
                text += "</tb>"
            text += "</gpu>"
        plan = read(text + "</algo>")
        assert_means(plan, "reduce_scatter", False)
        assert len(plan.ranks[0].blocks) == 2


def test_the_source_of_fused_reductions_is_local() -> None:
    """Down a chain and back. Every rank has its operand at another place of its scratch, and where its neighbours have
    theirs the chunks the other way round."""
    text = '<algo name="chain" nchannels="1" nchunksperloop="2" ngpus="3" coll="allreduce" inplace="0">'
    for r, (place, kinds) in enumerate(((2, ("s", "rcs")), (3, ("rrs", "r")), (4, ("rrcs",)))):
        text += f'<gpu id="{r}" i_chunks="2" o_chunks="2" s_chunks="6">'
        text += f'<tb id="0" send="{(r + 1) % 3}" recv="{(r - 1) % 3}" chan="0">'
        steps = [step(k, "cpy", f"i{k % 2}", f"s{(place + k) % 6}") for k in range(6)]
        steps += [step(6 + k, kind, f"s{place}", "o0", 2) for k, kind in enumerate(kinds)]
        text += "".join(steps) + "</tb></gpu>"
    assert_means(read(text + "</algo>"), "all_reduce", False)


def test_all_to_all_with_wide_steps_and_several_channels() -> None:
    text = '<algo name="a2a" nchannels="2" nchunksperloop="4" ngpus="2" coll="alltoall" inplace="0">'
    for r in range(2):
        p = 1 - r
        text += f'<gpu id="{r}" i_chunks="4" o_chunks="4" s_chunks="0">'
        text += f'<tb id="0" send="{p}" recv="{p}" chan="0">' + step(0, "s", f"i{2 * p}", f"o{2 * r}", 2)
        text += step(1, "r", f"i{2 * r}", f"o{2 * p}", 2) + "</tb>"
        text += (
            '<tb id="1" send="-1" recv="-1" chan="1">'
            + step(0, "cpy", f"i{2 * r}", f"o{2 * r}", 2)
            + "</tb></gpu>"
        )
    assert_means(read(text + "</algo>"), "all_to_all", False)


def broadcast(head: str, collective: str = "broadcast") -> str:
    """Of two ranks. head: what <algo> has besides."""
    text = (
        f'<algo name="to" nchannels="1" nchunksperloop="2" ngpus="2" coll="{collective}" inplace="0" {head}>'
    )
    text += '<gpu id="0" i_chunks="2" o_chunks="2" s_chunks="0"><tb id="0" send="1" recv="-1" chan="0">'
    text += step(0, "s", "i0", "o0", 2) + step(1, "cpy", "i0", "o0", 2) + "</tb></gpu>"
    text += '<gpu id="1" i_chunks="2" o_chunks="2" s_chunks="0"><tb id="0" send="-1" recv="0" chan="0">'
    return text + step(0, "r", "i0", "o0", 2) + "</tb></gpu></algo>"


def test_attributes_and_elements_that_nobody_knows_are_passed_over() -> None:
    known = broadcast("")
    strange = known.replace('nchannels="1"', 'nchannels="1" version="9.1" inPlace="maybe"')
    strange = strange.replace("<gpu ", '<gpu nic="left" ').replace(
        "<tb ", '<note text="x"/><tb warps="many" '
    )
    strange = strange.replace("<step ", '<step fence="yes" ').replace(
        "</algo>", '<nic id="0"><step/></nic></algo>'
    )
    assert strange.count("<note") == 2 and strange.count("fence=") == 3
    assert ir.to_text(read(strange)) == ir.to_text(read(known))


def test_sizes_that_a_file_is_for() -> None:
    for head, sizes in (
        ("", None),
        ('maxcount="2" nthreadblocks="1"', None),
        ('minBytes="1024" maxBytes="65536" outofplace="0"', (1024, 65536)),
        ('minBytes="1024" maxBytes="65536"', (1024, 65535)),  # microsoft/msccl's, which stops before maxBytes
        ('minBytes="1024" maxBytes="0"', (1024, NO_LIMIT)),  # as MSCCL's scheduler takes it
        ('maxBytes="65536"', (0, 65535)),
        ('minBytes="1024"', (1024, NO_LIMIT)),
        ('minBytes="0" maxBytes="0"', None),  # as it stands where nobody chose
        ('outofplace="1"', None),
        ('minBytes="64" maxBytes="64" outofplace="1"', (64, 64)),
    ):
        assert read(broadcast(head)).sizes == sizes
    with pytest.raises(XmlError, match="minBytes is 9, maxBytes 8: no size is between them"):
        read(broadcast('minBytes="9" maxBytes="8"'))
    with pytest.raises(XmlError, match="minBytes is 64, maxBytes 64: no size is between them"):
        read(broadcast('minBytes="64" maxBytes="64"'))  # which microsoft/msccl would never run
    # MSCCL counts one part of a gather, but all parts of an all-gather.
    for collective, sizes in (("gather", (128, 4096)), ("all_gather", (64, 2048))):
        text = write(make(collective, "direct" if collective == "gather" else "all_pairs", 2).compile(
            policy="connections", fans=False))  # fmt: skip
        text = text.replace('minBytes="0"', 'minBytes="64"').replace('maxBytes="0"', 'maxBytes="2048"')
        assert read(text).sizes == sizes
        assert 'minBytes="64" maxBytes="2048"' in write(read(text))
        # Less than a byte for each part is no reason for no limit.
        assert 'maxBytes="1"' in write(read(text), sizes=(0, 1))


def test_written_in_every_dialect() -> None:
    plan = make("all_gather", "ring", 3).compile(policy="connections")
    always = {"name", "proto", "nchannels", "nchunksperloop", "ngpus", "coll", "inplace"}
    azure = {"outofplace", "minBytes", "maxBytes"}
    for dialect, more in (
        ("msccl", set()),
        ("azure", azure),
        ("rccl", {*azure, "maxcount", "nthreadblocks"}),
    ):
        head = ElementTree.fromstring(write(plan, dialect=dialect))
        assert set(head.keys()) == always | more
        assert (head.get("minBytes", "0"), head.get("maxBytes", "0")) == ("0", "0")
        assert read(write(plan, dialect=dialect)).sizes is None
        blocks = [len(gpu.findall("tb")) for gpu in head.findall("gpu")]
        assert head.get("nthreadblocks") in (None, str(max(blocks)))
        for sizes in ((1024, 65536), (1024, NO_LIMIT)):
            text = write(plan, dialect=dialect, sizes=sizes)
            assert read(text).sizes == sizes
            assert ('maxBytes="65537"' in text) == (dialect == "msccl" and sizes[1] == 65536)
            # microsoft/msccl would run nothing with maxBytes="0".
            assert ('maxBytes="0"' in text) == (dialect != "msccl" and sizes[1] == NO_LIMIT)
    wide = make("all_to_all", "two_step", 6).compile(policy="connections", fans=False)
    assert ElementTree.fromstring(write(wide, dialect="rccl")).get("maxcount") == "3"
    with pytest.raises(ValueError, match="no dialect is called 'nccl'; use one of msccl, azure, rccl"):
        write(plan, dialect="nccl")
    with pytest.raises(ValueError, match="no proto is called 'simple'; use one of Simple, LL, LL128"):
        write(plan, protocol="simple")


def test_collectives_of_one_s_own_have_a_word_in_one_dialect_alone() -> None:
    plan = program("all_to_next", "direct", 3).compile(policy="connections", fans=False)
    for dialect in ("azure", "rccl"):
        with pytest.raises(
            XmlError, match=f"{dialect} has no word for custom; write it in the dialect msccl"
        ):
            write(plan, dialect=dialect)
    assert write(plan) == write(plan, dialect="msccl")
    again = read(write(plan))
    assert again.collective == "custom" and again.postcondition is not None


def test_a_message_that_is_overwritten_at_its_source_before_it_is_received() -> None:
    """Rank 0 and 1 swap in place: each sends, then receives over what it sent. The message lies in a slot meanwhile."""
    text = '<algo name="swap" nchannels="1" nchunksperloop="2" ngpus="2" coll="alltoall" inplace="1">'
    for r in range(2):
        p = 1 - r
        text += (
            f'<gpu id="{r}" i_chunks="2" o_chunks="2" s_chunks="0"><tb id="0" send="{p}" recv="{p}" chan="0">'
        )
        text += step(0, "s", f"i{p}", f"o{r}") + step(1, "r", f"i{r}", f"o{p}") + "</tb></gpu>"
    assert_means(read(text + "</algo>"), "all_to_all", True)


@pytest.mark.parametrize(("collective", "name"), [n for n in NAMES if n[0] != "all_to_next"])
def test_written_and_read_again(collective: str, name: str) -> None:
    for ranks, in_place in ((2, False), (4, False), (4, True)):
        if in_place and collective in ALWAYS_APART:
            continue
        plan = make(collective, name, ranks, 1, in_place).compile(
            policy="connections", fans=False, verify=False
        )
        try:
            text = write(plan)
        except XmlError as error:
            assert "several peers" in str(error)
            plan = make(collective, name, ranks, 1, in_place).compile(
                policy="connections", fusion=False, verify=False
            )
            text = write(plan)
        assert_means(read(text), collective, in_place)


def test_sums_in_an_order_of_each_rank_s_own_come_to_the_same_bits() -> None:
    """One shot over a block for each peer; every rank begins with its own contribution. Compiled, all have one."""
    ranks = 4
    text = f'<algo name="small" nchunksperloop="1" ngpus="{ranks}" coll="allreduce" inplace="1" proto="LL">'
    for r in range(ranks):
        text += f'<gpu id="{r}" i_chunks="1" o_chunks="1" s_chunks="{ranks}">'
        peers = [p for p in range(ranks) if p != r]
        for number, peer in enumerate(peers):
            text += f'<tb id="{number}" send="{peer}" recv="{peer}" chan="0">' + step(0, "s", "i0", f"s{r}")
            text += step(1, "r", "i0", f"s{peer}", 1, (-1, -1), number > 0)
            if number == 0:
                text += "".join(step(2 + k, "nop", "i0", "i0", 1, (k + 1, 1)) for k in range(ranks - 2))
                text += "".join(step(ranks + k, "re", f"s{p}", "i0") for k, p in enumerate(peers))
            text += "</tb>"
        text += "</gpu>"
    assert_means(read(text.replace('hasdep="True"', 'hasdep="1"') + "</algo>"), "all_reduce", True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("<algo", "<alog"), "no XML"),
        (('type="rrs"', 'type="rxs"'), "no step has the type 'rxs'"),
        (('ngpus="4"', 'ngpus="four"'), "a whole number as ngpus"),
        (('srcbuf="i"', 'srcbuf="q"'), "names the buffer 'q'"),
        (
            ('<step s="0" type="s"', '<step s="0" type="r"'),
            "the algorithm deadlocks: gpu 0 tb 0 waits for ever in step",
        ),
        (('depid="-1" deps="-1"', 'depid="7" deps="0"'), "waits for a step that is not there"),
        (('srcoff="3"', 'srcoff="-3"'), r"gpu 0 tb 0 step 1 \(rrs\): rank 0 input\[-3\] holds no chunk"),
        (
            ('dstoff="2" cnt="1"', 'dstoff="2" cnt="2"'),
            r"gpu 0 tb 0 step 2 \(rrs\): receives 2 chunks where gpu 3 tb 0 step 1 sends 1",
        ),
        (('ngpus="4"', 'ngpus="0"'), "ngpus is 0; use 1 to 4096"),
        (('nchunksperloop="4"', 'nchunksperloop="-4"'), "nchunksperloop is -4; use 1 or more"),
        (('<gpu id="1"', '<gpu id="0"'), "there are 2 blocks gpu 0 tb 0"),
        (('<step s="1"', '<step s="0"'), 'gpu 0 tb 0 has a step s="0" where 1 should come'),
        (('send="1"', 'send="0"'), "gpu 0 tb 0 sends to its own gpu"),
        (('recv="3"', 'recv="0"'), "gpu 0 tb 0 receives from its own gpu"),
        (('recv="3"', 'recv="4"'), "gpu 0 tb 0 receives from gpu 4; use 0 to 3, or -1 for none"),
        (('proto="LL"', 'proto="LL64"'), "no proto is called 'LL64'; use one of Simple, LL, LL128"),
        (('i_chunks="4"', 'i_chunks="5"'), "gpu 0: i_chunks is 5; all_reduce has 4 chunks of input"),
        (('o_chunks="0"', 'o_chunks="9"'), "gpu 0: o_chunks is 9; all_reduce has 4 chunks of output"),
        (('i_chunks="4"', 'i_chunks="-1"'), "gpu 0: i_chunks is -1; use 0 or more"),
        (
            ('i_chunks="4"', 'i_chunks="3"'),
            r"gpu 0 tb 0 step 1 \(rrs\): uses input up to chunk 3, but i_chunks is 3",
        ),
        (
            ('dstbuf="i" dstoff="1"', 'dstbuf="o" dstoff="1"'),
            r"gpu 0 tb 0 step 3 \(rrcs\): uses output up to chunk 1, but o_chunks is 0",
        ),
        (
            ('dstbuf="i" dstoff="1"', 'dstbuf="s" dstoff="2"'),
            r"gpu 0 tb 0 step 3 \(rrcs\): uses scratch up to chunk 2, but s_chunks is 0",
        ),
    ],
)
def test_wrong_files_are_refused_with_the_place(change: tuple[str, str], message: str) -> None:
    text = ring_all_reduce(4, DIALECTS["azure"]).replace(*change, 1)
    with pytest.raises(XmlError, match=message):
        read(text)


def test_a_wrong_algorithm_is_refused() -> None:
    text = ring_all_reduce(4, DIALECTS["azure"]).replace('type="rrcs"', 'type="rcs"', 1)
    with pytest.raises(PostconditionError, match=r"^gpu \d tb 0 step \d: ring: at the end rank \d output"):
        read(text)
    for tile in (17, -16, 1 << 32):
        text = ring_all_reduce(4, DIALECTS["azure"]).replace("<algo", f'<algo tileBytes="{tile}"', 1)
        with pytest.raises(
            XmlError, match=f"^tileBytes is {tile}; use a multiple of 16 up to 4294967280, or 0"
        ):
            read(text)


def test_an_algorithm_of_its_own_collective() -> None:
    text = '<algo name="mine" nchannels="1" nchunksperloop="1" ngpus="2" coll="custom" inplace="0">'
    text += '<gpu id="0" i_chunks="1" o_chunks="1" s_chunks="0"><tb id="0" send="1" recv="-1" chan="0">'
    text += step(0, "s", "i0", "o0") + "</tb></gpu>"
    text += '<gpu id="1" i_chunks="1" o_chunks="1" s_chunks="0"><tb id="0" send="-1" recv="0" chan="0">'
    text += step(0, "r", "i0", "o0") + "</tb></gpu></algo>"
    plan = read(text)
    assert plan.collective == "custom"
    assert ir.verify(plan) == 1


def nop(s: int, wait: tuple[int, int]) -> str:
    """As msccl-tools writes it: of no chunks, at no place."""
    return step(s, "nop", "i-1", "o-1", 0, wait)


@pytest.mark.parametrize("ranks", [3, 4, 5])
def test_messages_of_several_chunks_that_blocks_of_their_own_add_up(ranks: int) -> None:
    """In place, without an output. Every rank sends all its chunks to all; then each block sums up one chunk, and a
    block without peers the rank's own; several waits are nops. The chunk that a rank adds up first is its own."""
    head = (
        f'nchannels="1" nchunksperloop="{ranks}" ngpus="{ranks}" coll="allreduce" inplace="1" outofplace="0"'
    )
    text = f'<algo name="one step" proto="LL" {head} minBytes="0" maxBytes="4096">'
    for r in range(ranks):
        peers = [p for p in range(ranks) if p != r]
        text += f'<gpu id="{r}" i_chunks="{ranks}" o_chunks="0" s_chunks="{ranks * (ranks - 1)}">'
        for number, chunk in enumerate([r, *peers]):
            steps = []
            if number > 0:
                there = [p for p in range(ranks) if p != chunk].index(r) * ranks
                steps.append(step(0, "s", "i0", f"s{there}", ranks, (-1, -1), 1))
                steps.append(step(1, "r", "i0", f"s{(number - 1) * ranks}", ranks, (-1, -1), 1))
            # Everything was sent before it is overwritten, and has come before it is added up.
            others = [b for b in range(1, ranks) if b != number]
            waits = [(b, s) for s in (0, 1) for b in others]
            steps += [nop(len(steps) + k, wait) for k, wait in enumerate(waits[:-1])]
            for k in range(ranks - 1):
                wait = waits[-1] if k == 0 else (-1, -1)
                steps.append(step(len(steps), "re", f"s{k * ranks + chunk}", f"i{chunk}", 1, wait))
            peer = -1 if number == 0 else chunk
            text += f'<tb id="{number}" send="{peer}" recv="{peer}" chan="0">' + "".join(steps) + "</tb>"
        text += "</gpu>"
    assert_means(read(text + "</algo>"), "all_reduce", True)


def test_in_place_all_gather_of_files_without_an_input() -> None:
    """The own part is named as the output's: receiving and sending blocks are apart, on channels of the sender's."""
    ranks, parts = 4, 2
    text = f'<algo name="gather" proto="LL" nchannels="8" nchunksperloop="{ranks * parts}" ngpus="{ranks}" '
    text += 'coll="allgather" inplace="1" outofplace="0" minBytes="1024" maxBytes="1048575">'
    for r in range(ranks):
        text += f'<gpu id="{r}" i_chunks="0" o_chunks="{ranks * parts}" s_chunks="0">'
        number = 0
        peers = [(p, h) for p in range(ranks) if p != r for h in range(parts)]
        for kind, other in (("r", "recv"), ("s", "send")):
            for p, h in peers:
                owner = p if kind == "r" else r
                ends = f'send="{p if other == "send" else -1}" recv="{p if other == "recv" else -1}"'
                text += f'<tb id="{number}" {ends} chan="{owner + ranks * h}">'
                text += step(0, kind, f"o{owner * parts + h}", f"o{owner * parts + h}") + "</tb>"
                number += 1
        text += "</gpu>"
    assert_means(read(text + "</algo>"), "all_gather", True)


def shifted(ranks: int, in_place: int) -> str:
    """Every rank's buffer goes to the next one; sending and receiving blocks wait for nothing."""
    text = f'<algo name="pipeline" proto="Simple" nchannels="1" nchunksperloop="2" ngpus="{ranks}" coll="custom" '
    text += f'inplace="{in_place}">'
    for r in range(ranks):
        text += f'<gpu id="{r}" i_chunks="2" o_chunks="{2 if r else 0}" s_chunks="0">'
        if r > 0:
            text += f'<tb id="0" send="-1" recv="{r - 1}" chan="0">' + step(0, "r", "i0", "o0", 2) + "</tb>"
        if r + 1 < ranks:
            text += f'<tb id="1" send="{r + 1}" recv="-1" chan="0">' + step(0, "s", "i0", "o0", 2) + "</tb>"
        text += "</gpu>"
    return text + "</algo>"


def test_an_own_collective_that_says_in_place_and_names_two_buffers() -> None:
    """In one buffer what comes would race with what goes: it is read as it is meant, and holds that."""
    plan = read(shifted(4, 1))
    assert not plan.in_place
    assert plan.postcondition is not None
    held = {(h.rank, h.chunk + k, tuple((r, c + k) for r, c in h.terms)) for h in plan.postcondition
            for k in range(h.chunks)}  # fmt: skip
    assert held == {(r, k, ((r - 1, k),)) for r in range(1, 4) for k in range(2)}
    assert ir.to_text(plan) == ir.to_text(read(shifted(4, 0)))
    with pytest.raises(XmlError, match="depends on which of its blocks are first"):
        read(shifted(4, 1), in_place=True)
