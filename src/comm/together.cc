// Operations that begin together: none of them stands behind another, though they are of one stream
// (docs/design/0007-start-as-a-kernel.md).
#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/short_list.h"
#include "comm/communicator.h"

namespace starling {
namespace {

// As far as the calls say it.
bool share_stream(std::span<const starling_operation> calls) {
  if (calls.size() < 2 || calls.size() > device::kMostTogether) return false;
  return std::all_of(calls.begin(), calls.end(), [&](const starling_operation& call) {
    const bool from_any = call.kind == STARLING_RECV && call.peer == -1;
    return call.start != STARLING_START_NOW && call.stream == calls.front().stream && !from_any;
  });
}

}  // namespace

void Communicator::submit_together(std::span<const starling_operation> calls,
                                   std::vector<RequestPtr>& submitted) {
  // One by itself holds nobody up: it may hold its stream from the beginning, and needs no daemon then.
  if (calls.size() == 1) return void(submitted.push_back(submit(calls.front())));
  if (submit_in_one_kernel(calls, submitted)) return;
  // The stream is held when all are under way. Until then an operation that is stuck parks, and the next
  // begins.
  const auto held_later = [this](const starling_operation& call) {
    const bool to_self = is_message(call) && call.peer == int32_t(rank_);  // it waits for nobody
    return call.start == STARLING_START_HOLD_STREAM && !to_self;
  };
  submitted.reserve(calls.size());
  for (const starling_operation& call : calls) {
    if (!held_later(call)) {
      submitted.push_back(submit(call));
      continue;
    }
    starling_operation now = call;
    now.start = STARLING_START_ON_STREAM;
    submitted.push_back(submit(now));
  }
  for (size_t k = 0; k < calls.size(); ++k)
    if (held_later(calls[k])) context_.wait_on_stream(*submitted[k], calls[k].stream);
}

// False: it cannot be, and nothing was submitted. If it throws neither.
bool Communicator::submit_in_one_kernel(std::span<const starling_operation> calls,
                                        std::vector<RequestPtr>& submitted) {
  if (!share_stream(calls)) return false;
  std::vector<RequestPtr> requests;
  requests.reserve(calls.size());
  for (const starling_operation& call : calls) requests.push_back(new_request(call));
  // All are of one stream: one look tells of all, and prepare_for_stream() asks for each.
  for (const starling_operation& call : calls) check_start(call);
  const Capture capture = check_stream_call(calls.front());
  const std::lock_guard lock(mutex_);
  if (refused_by_abort(requests.front())) {
    for (size_t k = 1; k < requests.size(); ++k) refused_by_abort(requests[k]);
    submitted = std::move(requests);
    return true;
  }
  ShortList<Departure, device::kMostTogether> departures;
  for (size_t k = 0; k < calls.size(); ++k) {
    const starling_operation& call = calls[k];
    if (is_message(call)) {
      check_peer(call);
      if (uint32_t(call.peer) == rank_) return false;
      requests[k]->set_source(call.peer);
      departures.push_back(pair_departure(call, uint32_t(call.peer), requests[k], capture));
    } else {
      departures.push_back(collective_departure(call, requests[k], capture));
    }
    const HostLane* lane = departures[k].lane;
    const auto is_there = [lane](const Departure& other) { return other.lane == lane; };
    if (lane->by_copies() || std::any_of(departures.begin(), departures.end() - 1, is_there)) return false;
  }
  if (capture) {
    for (Departure& one : departures) one.lane = &twin_of(*one.lane, *capture);
    context_.capture(departures, *capture);
  } else {
    context_.submit_together(departures);
  }
  submitted = std::move(requests);
  return true;
}

void Context::submit_together(std::span<Departure> departures) {
  std::array<std::string, device::kMostTogether> refused;
  std::array<bool, device::kMostTogether> news;
  std::array<Departing, device::kMostTogether> departing;
  const uint64_t now = cpu::monotonic_ns();
  for (size_t k = 0; k < departures.size(); ++k) {
    refused[k] = check_buffers(*departures[k].lane, departures[k].flight.lowered);
    departures[k].flight.submit_at(now);
  }
  ShortList<StreamLaunch, device::kMostTogether> launches;
  uint64_t written = 0;
  place_->make_room();
  std::unique_lock lock = lock_to_submit();
  for (const Departure& departure : departures) departure.lane->prefetch_board();
  for (size_t k = 0; k < departures.size(); ++k)
    news[k] = open_lane(lock, *departures[k].lane, departures[k].flight.lowered);
  for (size_t k = 0; k < departures.size(); ++k) {
    count_submitted(*departures[k].lane, departures[k].flight, refused[k]);
    departing[k] = {departures[k].lane, &departures[k].flight};
  }
  prepare_for_stream(lock, std::span(departing).first(departures.size()));
  for (size_t k = 0; k < departures.size(); ++k) {
    HostLane& lane = *departures[k].lane;
    if (refused_by_fault(lane, departures[k].flight)) continue;
    departures[k].flight.joins = !launches.empty();
    if (const Flight* entered = take_over(lane, std::move(departures[k].flight), news[k])) {
      launches.push_back(launch_of(lane, *entered));
      written = std::max(written, entered->written);
    }
  }
  lock.unlock();
  if (launches.empty()) return;
  place_->await(written);
  executor_->streams()->enqueue(launches);
}

}  // namespace starling
