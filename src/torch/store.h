// A c10d Store seen as the key-value store that communicators of the library meet in.
#pragma once

#include <chrono>
#include <string>

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <starling/starling.h>

namespace starling::torch_adapter {

// Whether the key is there by the deadline. By looks, not by a wait of the store's: TCPStore logs two lines
// for each of those that ends without an answer.
bool look_for(c10d::Store& store, const std::string& key, std::chrono::steady_clock::time_point deadline);

class StoreView {
 public:
  explicit StoreView(c10::intrusive_ptr<c10d::Store> store);
  StoreView(const StoreView&) = delete;
  StoreView& operator=(const StoreView&) = delete;

  // Valid as long as this object.
  const starling_store* get() const { return &view_; }
  c10d::Store& store() const { return *store_; }

 private:
  c10::intrusive_ptr<c10d::Store> store_;
  starling_store view_{};
};

}  // namespace starling::torch_adapter
