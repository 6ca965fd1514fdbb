// Which ranks a context knows: those of its host by their segments, those of others by their shadows.
#include <utility>

#include "base/env.h"
#include "base/error.h"
#include "comm/context.h"
#include "comm/link_options.h"

namespace starling {

Peer Context::attach_segment(const std::string& arena_name) {
  WeakPeer& known = peers_[arena_name];
  Peer peer{known.arena.lock(), known.memory.lock()};
  if (peer.arena == nullptr) known.arena = peer.arena = std::make_shared<cpu::PeerArena>(arena_name);
  return peer;
}

Peer Context::attach(const std::string& arena_name) {
  std::shared_ptr<PeerMemory> fresh;  // if two come at once, the second is not taken
  std::unique_lock lock(mutex_);
  Peer peer = attach_segment(arena_name);
  if (peer.memory == nullptr) {
    lock.unlock();
    std::unique_ptr<PeerMemory> attached = place_->attach(peer.arena);
    fresh = disposal_ != nullptr ? disposal_->share(std::move(attached)) : std::move(attached);
    lock.lock();
    peer.memory = peers_[arena_name].memory.lock();
    if (peer.memory == nullptr) peers_[arena_name].memory = peer.memory = fresh;
  }
  if (!std::exchange(peers_[arena_name].is_here, true))
    ranks_on_host_.fetch_add(1, std::memory_order_relaxed);
  neighbours_ |= peer.arena->header()->process_nonce != cpu::process_nonce();
  if (neighbours_ && proxy_ != nullptr) proxy_->has_neighbours();
  return peer;
}

void Context::open_buffers(const std::vector<Member>& members) {
  for (const Member& member : members)
    if (member.peer.memory != nullptr) member.peer.memory->open_buffers();
}

std::string Context::link_ports() {
  std::lock_guard lock(mutex_);
  if (proxy_ == nullptr) {
    link::carry::ProxyOptions options =
        link_options(settings(), arena_->header()->bytes, place_->bus_address());
    options.polls |= on_gpu();
    proxy_ = std::make_unique<link::carry::Proxy>(*arena_, options);
    if (neighbours_) proxy_->has_neighbours();
    flight_.linked();
    if (!options.polls) executor_->set_carrier(proxy_.get());
  }
  return proxy_->ports();
}

Peer Context::attach_remote(const link::carry::RemoteRank& remote, const std::string& ports) {
  link::carry::Way& way = proxy_->attach(remote, ports);
  std::lock_guard lock(mutex_);
  Peer peer = attach_segment(way.shadow_name());
  peer.way = &way;
  return peer;
}

}  // namespace starling
