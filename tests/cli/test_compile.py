"""Goal: `starling compile`, `verify` and `draw` do what they say, and say what is wrong.

Method: called in this process, on programs of the library, on a file of one's own, on text and on XML.
"""

from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest
from starling.plans import program
from typer.testing import CliRunner

from starling import ir
from starling.passes import PASSES, run_passes
from starling.passes.command import compile_app, draw_app, verify_app

OWN = """
from starling.lang import AllGather, Program

def program(ranks, wrong=False):
    made = Program("own", AllGather(ranks))
    for rank in range(ranks):
        for peer in range(ranks):
            if not (wrong and peer == 1):
                made.chunk(rank, "input", 0).copy(peer, "output", rank)
    return made
"""


def call(app, *words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(words))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def test_to_a_file_and_back(tmp_path: Path) -> None:
    for name in ("plan.txt", "plan.xml"):
        path = str(tmp_path / name)
        words = (
            "all_reduce/ring",
            "-n",
            "3",
            "-O",
            "instances=2",
            "--policy",
            "connections",
            "--output",
            path,
        )
        code, output = call(compile_app, *words)
        assert code == 0 and "is right" in output
        code, output = call(verify_app, path)
        assert code == 0 and "ring: all_reduce over 3 ranks is right" in output
    assert len(ir.parse((tmp_path / "plan.txt").read_text()).ranks[0].blocks) == 2


def test_xml_of_a_dialect(tmp_path: Path) -> None:
    path = tmp_path / "plan.xml"
    words = ("all_reduce/ring", "-n", "3", "--policy", "connections", "-o", str(path))
    assert call(compile_app, *words, "--dialect", "rccl")[0] == 0
    assert 'maxcount="1" nthreadblocks="1" outofplace="1" minBytes="0" maxBytes="0"' in path.read_text()
    code, output = call(compile_app, *words, "--dialect", "ccl")
    assert code == 2 and "msccl, azure, rccl" in output
    # A collective of one's own has a word in one dialect alone, and that is taken for it.
    words = ("all_to_next/direct", *words[1:])
    assert call(compile_app, *words)[0] == 0
    assert 'coll="custom"' in path.read_text() and "outofplace" not in path.read_text()
    code, output = call(compile_app, *words, "--dialect", "azure")
    assert code != 0 and "write it in the dialect msccl" in output


def test_a_program_of_one_s_own(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text(OWN)
    assert call(verify_app, str(path), "-n", "3")[0] == 0
    code, output = call(verify_app, str(path), "-n", "3", "-O", "wrong=True")
    assert code == 1 and "rank 1 output[0] holds nothing" in output
    code, output = call(compile_app, f"{path}:absent", "-n", "3")
    assert code == 2 and "has no function absent" in output
    code, output = call(compile_app, str(path))
    assert code == 2 and "needs ranks" in output


def test_what_the_verifier_refuses_in_a_program_names_its_line(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text(
        """
from starling.lang import AllReduce, Program

def program():
    made = Program("own", AllReduce(4))
    a = made.chunk(0, "input", 0).copy(0, "output", 0).reduce(made.chunk(1, "input", 0))
    b = made.chunk(2, "input", 0).copy(2, "scratch", 0).reduce(made.chunk(3, "input", 0))
    c = made.chunk(1, "input", 0).copy(1, "output", 0)
    for rank in (0, 2, 3):
        c = c.reduce(made.chunk(rank, "input", 0))
    a = a.reduce(b)
    for rank in (2, 3):
        a.copy(rank, "output", 0)
    return made
"""
    )
    for app in (verify_app, compile_app):
        code, output = call(app, str(path))
        assert code == 1 and "own.py:10: plan 'own' is refused" in output.replace("\n", ""), output


CROSSED = """
from starling.lang import AllGather, Program

def program(messages):
    made = Program("crossed", AllGather(2, messages))
    own = [made.chunk(rank, "input", 0, messages) for rank in range(2)]
    for index in range(messages):
        for rank in range(2):
            own[rank][index].copy(1 - rank, "output", rank * messages + index)
    for rank in range(2):
        own[rank].copy(rank, "output", rank * messages)
    return made
"""


def test_slots_that_no_lane_has(tmp_path: Path) -> None:
    path, made = tmp_path / "crossed.py", str(tmp_path / "plan.txt")
    path.write_text(CROSSED)
    for messages, status, words in (
        (2, 0, "2 slots needed\n"),
        (
            3,
            1,
            "3 slots needed, but lanes have 2, and no communicator takes it: compile its program with --slots 2",
        ),
    ):
        code, output = call(
            compile_app, str(path), "-O", f"messages={messages}", "--slots", "8", "--output", made
        )
        assert code == 0 and words in output, output
        code, output = call(verify_app, made)
        assert code == status and words in output, output
    # What the compiler orders by itself fits.
    code, output = call(verify_app, str(path), "-O", "messages=9")
    assert code == 0 and "2 slots needed\n" in output, output


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def program(ranks):\n    return 1 // 0\n", "own.py:2: ZeroDivisionError: integer division"),
        ("\nimport absent_module\n", "own.py:2: ModuleNotFoundError: No module named 'absent_module'"),
        ("def program(ranks) return 3\n", "own.py:1: expected ':'"),
        ("def program(ranks):\n    return ranks\n", "own.py gave int, not a Program"),
        ("raise SystemExit\n", "own.py:1: SystemExit"),
        (
            "from starling.lang import Collective, Program\n"
            "class Own(Collective):\n"
            "    def expected(self, rank, index):\n"
            "        return {}[rank]\n"
            "def program(ranks):\n"
            "    return Program('own', Own(ranks))\n",
            "own.py:4: KeyError: 0",
        ),
        (
            "from starling.lang import AllReduce, Program\n"
            "def program(ranks):\n"
            "    return Program('own', AllReduce(ranks, 10**9))\n",
            "own.py:3: own's buffers have more than 1048576 chunks",
        ),
        (
            "from starling.lang import Broadcast, Program\n"
            "def program(ranks):\n"
            "    made = Program('own', Broadcast(ranks), instances=10**9)\n"
            "    for rank in range(ranks):\n"
            "        made.chunk(0, 'input', 0).copy(rank, 'output', 0)\n"
            "    return made\n",
            "own.py:3: instances is 1000000000; use 1 to 256",
        ),
        (
            "from starling.lang import Broadcast, Program\n"
            "def program(ranks):\n"
            "    made = Program('own', Broadcast(ranks), instances=2)\n"
            "    with made.parallelize(10**9):\n"
            "        for rank in range(ranks):\n"
            "            made.chunk(0, 'input', 0).copy(rank, 'output', 0)\n"
            "    return made\n",
            "own.py:3: own cuts a buffer into 2000000000 chunks",
        ),
    ],
)
def test_mistakes_of_python_name_the_line(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "own.py"
    path.write_text(text)
    drawn = ("-o", str(tmp_path / "own.svg"))
    for app, words in (
        (verify_app, ()),
        (compile_app, ()),
        (compile_app, ("--dump", "plan")),
        (draw_app, drawn),
        (draw_app, (*drawn, "--what", "graph")),
    ):
        code, output = call(app, str(path), "-n", "3", *words)
        assert code in (1, 2) and expected in output.replace("\n", ""), output


def test_a_file_finds_itself_and_what_lies_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text(
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "from own_messages import messages\n"
        "@dataclass\n"
        "class Options:\n"
        "    messages: int = messages\n"
        + CROSSED.replace("program(messages)", "program(messages=Options().messages)")
    )
    (tmp_path / "own_messages.py").write_text("messages = 2\n")
    code, output = call(verify_app, str(path))
    assert code == 0 and "crossed: all_gather over 2 ranks is right" in output, output


@pytest.mark.parametrize("name", PASSES)
def test_every_pass_can_be_seen(name: str) -> None:
    code, output = call(compile_app, "all_reduce/hierarchical", "-n", "4", "--dump", name)
    assert code == 0 and output.count("\n") > 10


@pytest.mark.parametrize("what", ["chunks", "graph", "schedule"])
def test_pictures_show_everything(tmp_path: Path, what: str) -> None:
    path = tmp_path / "picture.svg"
    name = (
        "halving_doubling" if what == "graph" else "two_shot"
    )  # whose instructions wait for others of their rank
    words = (f"all_reduce/{name}", "-n", "3", "--what", what, "--size", "96", "--output", str(path))
    assert call(draw_app, *words)[0] == 0
    groups = [
        group.get("id", "").split("-")
        for group in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}g")
    ]
    shown = Counter(group[0] for group in groups if group[0] in ("dot", "edge", "bar"))
    compiled = run_passes(program("all_reduce", name, 3))
    nodes = compiled.fused.nodes
    assert what != "graph" or sum(len(node.before) for node in nodes) > 2
    blocks = [block for rank in compiled.plan.ranks for block in rank.blocks]
    assert (
        shown
        == {
            # 9 input chunks; of each rank's part 2 are sent and reduced, the sum is copied and sent to 2.
            "chunks": {"dot": 9 + 3 * (2 + 2 + 1 + 2), "edge": 3 * (2 + 2 * 2 + 1 + 2)},
            "graph": {
                "dot": len(nodes),
                "edge": sum(len(node.receives) + len(node.before) for node in nodes),
            },
            # A chunk of 32 bytes goes in one tile.
            "schedule": {"bar": sum(len(block.instructions) for block in blocks)},
        }[what]
    )


@pytest.mark.parametrize("what", ["chunks", "graph", "schedule"])
@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_pictures(tmp_path: Path, what: str, suffix: str) -> None:
    pictures = []
    for number in range(2):
        path = tmp_path / f"{number}.{suffix}"
        code, _ = call(draw_app, "all_reduce/two_shot", "-n", "3", "--what", what, "--output", str(path))
        assert code == 0
        pictures.append(path.read_bytes())
    assert len(pictures[0]) > 2000 and pictures[0] == pictures[1]


@pytest.mark.parametrize(
    ("source", "option", "expected"),
    [
        ("all_reduce/ring", "instances=x", "option instances of all_reduce/ring is 'x'; use a whole number"),
        (
            "all_reduce/ring",
            "instances=1.5",
            "option instances of all_reduce/ring is 1.5; use a whole number",
        ),
        (
            "all_reduce/ring",
            "instances=True",
            "option instances of all_reduce/ring is True; use a whole number",
        ),
        ("all_reduce/ring", "in_place=yes", "option in_place of all_reduce/ring is 'yes'; use True or False"),
        ("all_reduce/ring", "instances=0", "all_reduce/ring: instances is 0; use 1 to 256"),
        (
            "all_reduce/ring",
            "rings=2",
            "all_reduce/ring has no option rings; it has channels, instances, in_place",
        ),
        ("own.py", "wrong=2", "option wrong of own.py is 2; use True or False"),
    ],
)
def test_options_that_a_program_does_not_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, option: str, expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(OWN)
    for app in (verify_app, compile_app):
        code, output = call(app, source, "-n", "3", "-O", option)
        assert code == 2 and output == f"{expected}\n", output


def test_options_of_a_program_that_takes_any(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text(OWN.replace("wrong=False", "wrong=False, **more"))
    assert call(verify_app, str(path), "-n", "3", "-O", "more=x")[0] == 0
    path.write_text(OWN.replace("wrong=False", "wrong: Unknown = None"))
    assert (
        call(verify_app, str(path), "-n", "3", "-O", "wrong=")[0] == 1
    )  # which is no name that was imported


@pytest.mark.parametrize("tile_bytes", [8, -16, 1 << 32, 99999999999])
def test_tiles_that_no_plan_has(tile_bytes: int) -> None:
    code, output = call(compile_app, "all_reduce/ring", "-n", "3", "--tile-bytes", str(tile_bytes))
    told = f"--tile-bytes is {tile_bytes}; use a multiple of 16 up to 4294967280, or 0 for what SOURCE says\n"
    assert code == 2 and output == told, output
    assert call(compile_app, "all_reduce/ring", "-n", "3", "--tile-bytes", "4294967280")[0] == 0


def test_nonsense_is_refused() -> None:
    code, output = call(compile_app, "all_reduce/rung", "-n", "3")
    assert code == 2 and "all_reduce/ring" in output
    code, output = call(compile_app, "all_reduce/ring", "-n", "3", "--dump", "soup")
    assert code == 2 and "no pass is called 'soup'" in output


def test_files_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    for app in (compile_app, draw_app):
        code, output = call(app, "all_reduce/ring", "-n", "2", "-o", str(tmp_path / "absent" / "plan.svg"))
        assert code == 2 and "plan.svg: No such file or directory" in output
    for name in ("plan.txt", "plan.xml"):
        path = tmp_path / name
        path.write_text("garbage")
        code, output = call(verify_app, str(path))
        assert code == 1 and f"{path}: " in output
    (tmp_path / "marked.txt").write_text("\ufeff" + ir.to_text(ir.builtin("all_reduce", "ring", 2)), "utf-8")
    assert call(verify_app, str(tmp_path / "marked.txt"))[0] == 0
    path.write_bytes(b"\xff\xfe")
    assert call(verify_app, str(path))[0] == 1
    code, output = call(verify_app, "/proc/self/mem")  # whose error names no file
    assert code == 2 and "cannot read or write a file: Input/output error" in output
    # XML says in which letters it is written; what is wrong in it names its own places.
    assert call(compile_app, "all_gather/ring", "-n", "2", "-o", str(path))[0] == 0
    text = '<?xml version="1.0" encoding="utf-16"?>' + path.read_text()
    path.write_text(text, encoding="utf-16")
    assert call(verify_app, str(path))[0] == 0
    path.write_text(text.replace('srcoff="0"', 'srcoff="1"', 1), encoding="utf-16")
    code, output = call(verify_app, str(path))
    assert code == 1 and output.startswith(f"{path}: gpu 0 tb 0 step 0"), output
    for what in ("chunks", "graph"):
        code, output = call(draw_app, str(tmp_path / "plan.txt"), "--what", what, "-o", "graph.svg")
        assert code == 2 and "--what schedule" in output


def test_what_a_plan_does_not_answer(tmp_path: Path) -> None:
    path, picture = tmp_path / "plan.txt", str(tmp_path / "plan.svg")
    assert call(compile_app, "all_reduce/ring", "-n", "4", "-o", str(path))[0] == 0
    for app, words in ((verify_app, ()), (compile_app, ()), (draw_app, ("-o", picture))):
        code, output = call(app, str(path), "-n", "3", *words)
        assert code == 2 and "is for 4 ranks, not 3; use --ranks 4" in output
        assert call(app, str(path), "-n", "4", *words)[0] == 0
    code, output = call(compile_app, str(path), "--dump", "steps")
    assert (
        code == 2
        and "plan.txt is a plan, which has no graph any more; dump the passes of the program" in output
    )
    # Without chunks nothing has a length.
    path.write_text(path.read_text().replace("chunks_per_group 4", "chunks_per_group 0"))
    code, output = call(draw_app, str(path), "-o", picture)
    assert code == 1 and "0 chunks in a group" in output
