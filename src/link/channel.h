// What one incarnation of a path is made of: a socket (tcp/connection.h), or queue pairs (verbs/channel.h).
// The flows (tcp/sending_flow.h, tcp/receiving_flow.h) do not know which.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "link/registration.h"
#include "wire/frame.h"
#include "wire/link.h"
#include "wire/monitor.h"

namespace starling::link {

struct RemotePlace {
  uint64_t address = 0;  // 0: none
  RemoteKeys keys = {};
  uint64_t offer = 0;  // its number; 0: what no peer takes back
  Placed placed = Placed::kInFrame;  // what the frame says of it
};

// One transfer as its sender's owner offers it: valid until the flow has acknowledged it.
struct Outgoing {
  const std::byte* control = nullptr;
  uint32_t control_bytes = 0;
  const std::byte* payload = nullptr;
  uint32_t payload_bytes = 0;
  uint64_t place[2] = {};
  // Of what the payload lies in; valid while the transfer is queued.
  const RegistrationPtr* source = nullptr;
  // Where it goes in the peer's memory, for channels that can write there; else the peer's sink says.
  RemotePlace remote = {};
};

// Payload bytes of a channel over queue pairs: read from where they lay and written where they go, or copied
// on their way at one end or both.
struct PayloadBytes {
  uint64_t straight = 0;
  uint64_t copied = 0;
};

// When something came: for monitors alone.
struct Heard {
  // When the system had it, where it says so; else when we saw it; 0: nobody asked, or the channel never
  // looks.
  uint64_t at_ns = 0;
  const ArrivalAges* ages = nullptr;  // that came with it; valid during the call
};

// Where what comes goes.
class FrameSink {
 public:
  virtual ~FrameSink() = default;
  // Of a transfer that begins to come: where its bytes go. False: it makes no sense; the channel ends.
  virtual bool begin(const FrameHeader& header, std::byte*& control, std::byte*& payload) = 0;
  virtual void end(const FrameHeader& header, uint64_t at_ns) = 0;  // all of it is there; as Heard::at_ns
  virtual void message(const LinkMessage& message, const Heard& heard) = 0;
  // What came makes no sense, in words that stay; the channel ends.
  virtual void refuse(const char* /*what*/) {}
};

class Channel {
 public:
  virtual ~Channel() = default;

  // kVerbs: what flush() adds has landed, since the peer's device has acknowledged it.
  virtual LinkKind kind() const = 0;
  // Readable when read() has something to do.
  virtual int fd() const = 0;
  // A report that no probe asked for says all that earlier ones said: it replaces one that waits. ages: null,
  // or what goes with it where the channel can.
  virtual void queue(const LinkMessage& message, const ArrivalAges* ages) = 0;
  // False: no room, nothing was done.
  virtual bool queue(uint32_t epoch, uint64_t sequence, const Outgoing& transfer) = 0;
  // Transfers before `acked` are in the peer's memory, and were read from where they came to.
  virtual void free_below(uint64_t acked) = 0;
  // Of that transfer, if it is here, nothing more is read from where it lay: `to` holds the same. False: a
  // device reads there, and only the fence ends that.
  virtual bool move_source(uint64_t sequence, const std::byte* to) = 0;
  // What has not come of a payload that goes to one of these bytes goes to `to` instead.
  virtual void move_destination(const std::byte* from, uint64_t bytes, std::byte* to) = 0;
  // Something waits until fd() can be written to.
  virtual bool waits_to_write() const = 0;
  // Sends what can be sent; adds the transfers that are done with their source. 0, or why the path is broken.
  virtual int flush(std::vector<uint64_t>& sent) = 0;
  // All so far.
  virtual PayloadBytes payloads() const { return {}; }
  // Takes what is there, but not for ever. 0, or why the path is broken.
  virtual int read(FrameSink& sink) = 0;
  // The fence (link.h, promise 3): tells what landed; afterwards nothing lands, and no source is read. 0, or
  // an error that was only found now.
  virtual int fence(FrameSink& sink) = 0;
  // What the device said of the work that failed; "": nothing.
  virtual const char* trouble() const { return ""; }

  // Why a path is broken, beside the numbers of errno:
  static constexpr int kEnded = -1;  // the peer closed it, or sent nonsense
  static constexpr int kTransferFailed = -2;
};

}  // namespace starling::link
