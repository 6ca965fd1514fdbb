"""The compiler (GC3 sections 4 and 5): a program becomes a plan, pass by pass.

    trace -> replicate -> resolve -> expand -> fuse -> schedule -> emit -> verify

Each pass is a module; ``compile_program`` runs them all, and ``starling compile --dump`` shows what one of them leaves
behind. The same program gives the same plan, byte for byte.
"""

from starling.passes.compiler import (
    PASSES,
    Compilation,
    CompileError,
    RefusedError,
    compile_program,
    run_passes,
)

__all__ = ["PASSES", "Compilation", "CompileError", "RefusedError", "compile_program", "run_passes"]
