// Ways of bench/gpu/link_probe.cu whose words are other warps' work. 16 warps move, each at its own pace; of
// two more one looks for the words of the rank before, a step ahead and more, and the other one fences, and
// tells the next rank, what all of the 16 have done. So nobody who moves waits for a fence, or for the
// slowest warp.
#pragma once
#include "link_ways.h"

namespace link_probe {

constexpr uint32_t kWarps = kThreads / 32;

// In shared memory.
struct Progress {
  uint32_t ready;  // words that the rank before has said
  uint32_t done[kWarps];  // steps, by warp
};

__device__ inline uint32_t load_shared(const uint32_t* word) {
  uint32_t value;
  asm volatile("ld.acquire.cta.shared.u32 %0, [%1];"
               : "=r"(value)
               : "r"(uint32_t(__cvta_generic_to_shared(word)))
               : "memory");
  return value;
}
__device__ inline void store_shared(uint32_t* word, uint32_t value) {
  asm volatile("st.release.cta.shared.u32 [%0], %1;" ::"r"(uint32_t(__cvta_generic_to_shared(word))),
               "r"(value)
               : "memory");
}

template <uint32_t n>
class Served : public Call<n> {
 public:
  using Base = Call<n>;
  __device__ Served(const Memory& memory, uint32_t call, uint64_t packs, uint64_t tile, Progress& progress)
      : Base(memory, call, packs, tile), p_(progress) {
    if (threadIdx.x <= kWarps) (threadIdx.x == kWarps ? p_.ready : p_.done[threadIdx.x]) = 0;
    __syncthreads();
  }

  // Rank 0 is the last one of a reduce, the first of a broadcast.
  template <bool kSums>
  __device__ void chain() {
    const uint32_t r = this->r, place = kSums ? n - 1 - r : r;
    const uint32_t to = kSums ? this->before : this->next, from = kSums ? this->next : this->before;
    if (serves(from, to, place == 0 ? 0 : this->tiles, place == n - 1 ? 0 : this->tiles)) return;
    for (uint32_t t = 0; t < this->tiles; ++t) {
      const uint64_t at = this->s.at(0, t), length = this->s.packs(t);
      if (place != 0) wait(t + 1);
      const float4* const own = this->m.in[r] + at;
      if constexpr (kSums) {
        float4* const where = place == n - 1 ? this->m.out[r] + at : this->m.scratch[to] + at;
        if (place == 0)
          copy(where, own, length);
        else
          move<2, 1>({this->m.scratch[r] + at, own}, {where}, length);
      } else if (place != n - 1) {
        copy(this->m.out[to] + at, place == 0 ? own : this->m.out[r] + at, length);
      }
      did(t + 1);
    }
  }

  // Step d of tile t is in turn t + d, and needs step d - 1 of the rank before, of the turn before.
  __device__ void reduce_all_ring() {
    ring<2 * (n - 1)>(
        [&](uint32_t d, uint32_t t) { Base::ring_step(d, this->s.at(0, t), this->s.packs(t)); });
  }
  __device__ void gather_ring() {
    ring<n - 1>([&](uint32_t d, uint32_t t) {
      const uint32_t r = this->r, chunk = (r + n - d) % n;
      const uint64_t at = this->s.at(chunk, t);
      if (d == 0)
        move<1, 2>({this->m.in[r] + this->s.at(0, t)}, {this->m.out[r] + at, this->m.out[this->next] + at},
                   this->s.packs(t));
      else
        copy(this->m.out[this->next] + at, this->m.out[r] + at, this->s.packs(t));
    });
  }

 private:
  template <uint32_t kSteps, class Step>
  __device__ void ring(Step&& step) {
    const uint32_t all = (this->tiles + kSteps - 1) * kSteps;
    if (serves(this->before, this->next, all, all)) return;
    uint32_t k = 0;
    for (uint32_t turn = 0; turn < this->tiles + kSteps - 1; ++turn)
      for (uint32_t d = 0; d < kSteps; ++d) {
        if (turn - d < this->tiles) {
          if (d != 0) wait(k - kSteps);
          step(d, turn - d);
        }
        did(++k);
      }
  }

  // True: this warp has served; so many words are awaited, and said.
  __device__ bool serves(uint32_t from, uint32_t to, uint32_t heard, uint32_t said) {
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (warp < kWarps) return false;
    if (warp == kWarps && lane == 0) {
      uint32_t seen = 0;
      for (uint64_t looks = 0; seen < heard; ++looks) {
        const uint32_t now = this->block.is_stuck(looks) ? heard : this->block.heard(from);
        if (now != seen) store_shared(&p_.ready, seen = now), looks = 0;
      }
    }
    if (warp == kWarps + 1) {
      uint32_t told = 0;
      for (uint64_t looks = 0; told < said; ++looks) {
        uint32_t least = __reduce_min_sync(~0u, load_shared(&p_.done[lane % kWarps]));
        if (this->block.is_stuck(looks)) return true;
        if (least == told) continue;
        if (lane == 0) this->block.tell(to, least);
        told = least;
        looks = 0;
      }
    }
    return true;
  }

  __device__ void wait(uint32_t words) {
    for (uint64_t looks = 0; load_shared(&p_.ready) < words && !this->block.is_stuck(looks); ++looks) {}
    __syncwarp();
  }
  __device__ void did(uint32_t steps) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) store_shared(&p_.done[threadIdx.x / 32], steps);
  }

  Progress& p_;
};

}  // namespace link_probe
