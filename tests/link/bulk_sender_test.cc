// Goal: what is lent to the thread of large sends goes whole, in order and once; a full socket and a broken
// one come back at once; what is recalled is read no more. Method: a pair of sockets, read as the test likes.
#include "link/tcp/bulk_sender.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <vector>

namespace starling::link::tcp {
namespace {

constexpr size_t kPieceBytes = 40'000;

class BulkSending : public ::testing::Test {
 protected:
  BulkSending() {
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends_), 0);
    const int bytes = 1 << 18;
    setsockopt(ends_[0], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    for (size_t at = 0; at < source_.size(); ++at) source_[at] = char(at * 31 + at / 1000);
  }
  ~BulkSending() override {
    for (const int end : ends_) close(end);
  }

  // From byte `at` of the source on.
  void lend(size_t at) {
    batch_.fd = ends_[0];
    batch_.count = 0;
    batch_.bytes = source_.size() - at;
    for (; at < source_.size(); at += kPieceBytes)
      batch_.pieces[batch_.count++] = {source_.data() + at, std::min(kPieceBytes, source_.size() - at)};
    sender_.lend(batch_);
  }
  bool comes_back() {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!BulkSender::returned(batch_)) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::yield();
    }
    return true;
  }
  // All that is there.
  void read_on() {
    char buffer[10'000];
    for (ssize_t got; (got = read(ends_[1], buffer, sizeof buffer)) > 0;)
      seen_.insert(seen_.end(), buffer, buffer + got);
  }

  int ends_[2];
  std::vector<char> source_ = std::vector<char>(1'500'000);
  std::vector<char> seen_;
  BulkSender::Batch batch_;
  BulkSender sender_;
};

TEST_F(BulkSending, GoesOnWhereAFullSocketStopped) {
  uint32_t rounds = 0;
  for (size_t at = 0; at < source_.size(); at += batch_.sent_bytes, ++rounds) {
    lend(at);
    ASSERT_TRUE(comes_back()) << "it waits for no socket";
    ASSERT_EQ(batch_.error, 0);
    if (rounds % 3 == 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // it may sleep
    read_on();
  }
  read_on();
  EXPECT_GT(rounds, 1u);
  EXPECT_TRUE(seen_ == source_);
}

TEST_F(BulkSending, SaysWhyASocketIsBroken) {
  close(ends_[1]);
  ends_[1] = open("/dev/null", O_RDONLY);
  lend(0);
  ASSERT_TRUE(comes_back());
  EXPECT_EQ(batch_.error, EPIPE);
  EXPECT_EQ(batch_.sent_bytes, 0u);
}

TEST_F(BulkSending, GivesBackWhatIsRecalled) {
  for (int k = 0; k < 200; ++k) {
    lend(0);
    BulkSender::recall(batch_);
    EXPECT_TRUE(BulkSender::returned(batch_));
    batch_.pieces[0] = {nullptr, 0};  // the owner's again
    read_on();
  }
}

}  // namespace
}  // namespace starling::link::tcp
