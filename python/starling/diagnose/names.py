"""What a job may be called by."""

from __future__ import annotations

import re

# As job_name() makes them (src/base/env.cc): the launcher's run id, and what makes it unique.
_OF_LAUNCHERS = re.compile(
    r"(?:TORCHELASTIC_RUN_ID|PMIX_NAMESPACE|OMPI_MCA_ess_base_jobid|SLURM_JOB_ID)=(.*?)"
    r"(?: (?:MASTER_PORT|PMIX_SERVER_TMPDIR|OMPI_MCA_orte_hnp_uri|SLURM_STEP_ID)=.*)?"
)


def given(name: str) -> set[str]:
    """The name that the user or the launcher gave; of a launcher's also the run id alone."""
    match = _OF_LAUNCHERS.fullmatch(name.strip())
    return {name.strip()} | ({match[1]} if match else set())
