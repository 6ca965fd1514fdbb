// How a link ends: by a flow that gave up, by an exception, or by what its peer says.
#include <cstdio>
#include <new>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "link/carry/peer_link.h"
#include "machine/cpu/doorbell.h"

namespace starling::link::carry {
namespace {

struct Nonsense final : Error {
  explicit Nonsense(const char* what)
      : Error(Code::mismatch, what, "use the same version of the library on all hosts") {}
};

}  // namespace

// Noted only: a flow is amid a step. round() ends the link.
void PeerLink::refuse(const char* what) {
  if (wrong_ == nullptr) wrong_ = what;
}

bool PeerLink::end_by_nonsense() {
  if (!gone()) lose_by(Nonsense(wrong_));
  return false;
}

void PeerLink::check_flows() {
  if (gone()) return;
  if (sending_->failed()) return lose(std::string(sending_->failure()));
  if (receiving_ && receiving_->failed()) return lose(std::string(receiving_->failure()));
}

void PeerLink::lose_by(const std::exception& why) noexcept {
  // Sockets first: from here on nothing is read into our memory, and the peer hears of it. The flows may
  // stand amid a step; to close their sockets is all that is asked of them.
  sending_.reset();
  receiving_.reset();
  transfers_.clear();
  batch_.clear();
  if (gone()) return;
  char text[kMostFailureBytes];
  const auto* known = dynamic_cast<const Error*>(&why);
  const bool memory = dynamic_cast<const std::bad_alloc*>(&why) != nullptr;
  std::snprintf(text, sizeof text, "the link to rank %u broke by %s: %s (%s); %s", peer_rank_,
                dynamic_cast<const Nonsense*>(&why) ? "what its proxy said" : "an error here",
                known    ? known->happened().c_str()
                : memory ? "no memory"
                         : why.what(),
                ports_.c_str(),
                known && !known->remedy().empty() ? known->remedy().c_str()
                : memory                          ? "give the process more memory"
                                                  : "report it, with what STARLING_LOG=debug writes");
  failure_.assign(text);  // fits in what was reserved
  try {
    log(LogLevel::error, failure_);
  } catch (...) {  // no memory for a line: the operations' errors tell it
  }
  end_shadow();
}

// Without its sockets, so that a peer whose own calls come here calls again, and hears of it: it may have
// nothing to send, and wait for what our flow cannot bring there.
void PeerLink::lose(const std::string& failure) {
  failure_ = failure;
  sending_.reset();
  receiving_.reset();
  transfers_.clear();
  batch_.clear();
  end_shadow();
}

void PeerLink::end_shadow() {
  shadow_.close(false);
  cpu::ring(&common_.arena.header()->host);
}

}  // namespace starling::link::carry
