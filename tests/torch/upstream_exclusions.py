"""Tests of PyTorch that do not run over Starling, each with the reason."""

_GLOO_ONLY = "torch itself lets only gloo pass: dist.monitored_barrier() compares the name of the backend"

EXCLUDED: dict[str, str] = {
    "test_SyncBatchNorm_process_group": "needs torchvision",
    "test_ddp_logging_data_cpu": "expects the group's name in DDP's log; torch writes 'custom' for third-party ones",
    "test_monitored_barrier_gloo": _GLOO_ONLY,
    "test_monitored_barrier_gloo_subgroup": _GLOO_ONLY,
    "test_monitored_barrier_failure_order": _GLOO_ONLY,
    "test_monitored_barrier_wait_all_ranks": _GLOO_ONLY,
    "test_new_subgroups_with_group_param": "needs a GPU",
}
