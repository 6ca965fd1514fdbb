// Told of completions by a daemon that runs on a waiting caller's thread.
#pragma once

namespace starling {

class CompletionListener {
 public:
  virtual ~CompletionListener() = default;
  // idle: after a pass in which nothing could go on.
  virtual void look(bool idle) = 0;
};

}  // namespace starling
