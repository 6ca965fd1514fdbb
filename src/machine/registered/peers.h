// The reader's side of wire/registration.h: what one owner has published is opened, and our blocks are told.
#pragma once
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "wire/registration.h"

namespace starling {

// What is asked of the driver. Calls of one thread at a time; they may take long.
class Handles {
 public:
  virtual ~Handles() = default;
  // Where this process reads it. Throws Error.
  virtual uint64_t open(const Registration& registration) = 0;
  // May wait until nothing runs on the device.
  virtual void close(uint64_t base) = 0;
};

// An opened registration stays open until the end: nobody closes on the way of an operation, and blocks never
// look twice.
class PeerRegistrations {
 public:
  // `theirs` in the owner's segment, `told` ours. Both outlive it, and so do `handles`.
  PeerRegistrations(RegistrationTable& theirs, OpenedRegistration* told, Handles& handles)
      : theirs_(theirs), told_(told), handles_(handles), opened_(kMaxRegistrations) {}
  // Closes all. No block reads the owner's memory any more.
  ~PeerRegistrations();
  PeerRegistrations(const PeerRegistrations&) = delete;
  PeerRegistrations& operator=(const PeerRegistrations&) = delete;

  // Something was published that open_all() has not looked at. One load; any thread.
  bool has_news() const;
  // Opens what is published and not open. By one thread at a time. What cannot be opened was freed meanwhile,
  // as a rule, and matters only if a block wants it.
  void open_all();
  // Why a message that some block has met cannot be read; "" while all can, or may yet. Any thread.
  std::string refusal() const;

 private:
  void open(uint32_t number);

  RegistrationTable& theirs_;
  OpenedRegistration* told_;
  Handles& handles_;
  uint64_t looked_at_ = 0;        // value of `published`; writer: open_all()
  std::vector<uint64_t> opened_;  // by number, where; 0: not open
  mutable std::mutex mutex_;      // guards what follows
  std::vector<std::pair<uint32_t, std::string>> failures_;  // by number
};

}  // namespace starling
