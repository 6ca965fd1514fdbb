// How many entries that were put into a stream may not have begun. The stream itself says how far it is:
// every so many entries it writes their number into a word of the host's, so who asks calls no driver. (An
// event would be recorded and asked for there; cudaEventRecord stands behind a copy to pageable memory from
// the legacy stream, and to make one behind any such copy, docs/GPU_PROBE.md.)
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <iterator>
#include <map>
#include <vector>

#include "base/quick_mutex.h"
#include "device/stream_call.h"

namespace starling::cuda {

class StreamDepths {
 public:
  static constexpr uint32_t kMostStreams = 1024;

  // `words`: kMostStreams of them, of pinned memory.
  explicit StreamDepths(uint64_t* words) {
    for (uint32_t k = kMostStreams; k-- > 0;) spare_.push_back(words + k);
  }

  // One more entry. Where a mark is due, write(word, value) puts it into the stream; under no lock.
  template <class Write>
  void put(device::Stream stream, Write&& write) {
    uint64_t* word = nullptr;
    uint64_t value = 0;
    {
      const std::lock_guard lock(mutex_);
      Depth* const depth = depth_of(stream);
      if (depth == nullptr || ++depth->put % kPutsPerMark != 0) return;
      word = depth->word;
      value = depth->put;
    }
    write(word, value);
  }

  uint32_t queued(device::Stream stream) {
    const std::lock_guard lock(mutex_);
    const auto found = depths_.find(stream);
    return found == depths_.end() ? 0 : uint32_t(found->second.look());
  }

 private:
  static constexpr uint64_t kPutsPerMark = 64;

  struct Depth {
    uint64_t* word;
    uint64_t put = 0;
    uint64_t begun = 0;  // at least

    // Relaxed: a count. Two threads' marks of one stream may be written the wrong way round, and one of a
    // stream that had the word before may come late.
    uint64_t look() {
      begun = std::max(begun, std::atomic_ref<uint64_t>(*word).load(std::memory_order_relaxed));
      return put > begun ? put - begun : 0;
    }
  };

  // Null: too many streams are deep at once; this one's is not known.
  Depth* depth_of(device::Stream stream) {
    if (const auto found = depths_.find(stream); found != depths_.end()) return &found->second;
    if (spare_.empty()) forget_shallow();
    if (spare_.empty()) return nullptr;
    uint64_t* const word = spare_.back();
    spare_.pop_back();
    std::atomic_ref<uint64_t>(*word).store(0, std::memory_order_relaxed);
    return &depths_.emplace(stream, Depth{word}).first->second;
  }

  // Streams that no mark is on its way in; most of them are gone.
  void forget_shallow() {
    for (auto known = depths_.begin(); known != depths_.end();) {
      const bool shallow = known->second.look() < kPutsPerMark;
      if (shallow) spare_.push_back(known->second.word);
      known = shallow ? depths_.erase(known) : std::next(known);
    }
  }

  QuickMutex mutex_;  // guards all below
  std::map<device::Stream, Depth> depths_;
  std::vector<uint64_t*> spare_;
};

}  // namespace starling::cuda
