// The store of ranks of one host whose launcher names the job: one small file in /dev/shm for each key and
// rank.
//
//   starling-job.<user>.<job>.<key>.<segment of the rank that set it>.<number>
//
// A file counts as long as the rank that set it lives, which the lock of its segment tells
// (machine/cpu/arena.h). Names are never used twice, so the files of dead jobs can be removed by anybody at
// any time.
#pragma once
#include <memory>
#include <string>

#include "comm/store.h"

namespace starling {

// `arena`: the name of this rank's segment. What the store holds of this rank ends with it.
std::unique_ptr<Store> job_store(const std::string& job, const std::string& arena);

// Removes the files of ranks of this user that are gone. Returns how many.
uint32_t remove_stale_job_files();

}  // namespace starling
