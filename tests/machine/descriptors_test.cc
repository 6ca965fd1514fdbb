// Goal: a process gets the descriptors of another one's memory and sees the same bytes, in their order;
// whoever asks for what is gone, or asks nobody, has an error within a bound; a reader that says nothing
// holds nobody up. Method: an owner and readers as processes and threads, with files in memory in the place
// of a GPU's.
#include "machine/registered/descriptors.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "base/error.h"

namespace starling {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kLimit{60'000};

Descriptor file_with(uint64_t value) {
  Descriptor file(memfd_create("piece", MFD_CLOEXEC));
  EXPECT_EQ(write(file.get(), &value, sizeof value), ssize_t(sizeof value));
  return file;
}

uint64_t value_in(const Descriptor& file) {
  uint64_t value = 0;
  return pread(file.get(), &value, sizeof value, 0) == ssize_t(sizeof value) ? value : 0;
}

// Views 1 to 9 have so many pieces, 5 has none, 7 fails.
std::vector<ExportedPiece> exported(uint64_t identity) {
  if (identity == 7) throw Error(Code::system, "no export today");
  std::vector<ExportedPiece> pieces;
  for (uint64_t k = 0; k < (identity == 5 ? 0 : identity); ++k) {
    ExportedPiece& piece = pieces.emplace_back();
    piece.bytes = 100 * identity + k;
    if (k % 2 == 0)
      piece.descriptor = file_with(1000 * identity + k);
    else
      piece.fabric.fill(uint8_t(identity * 16 + k));
  }
  return pieces;
}

ViewHandle view_of(const DescriptorServer& server, uint64_t identity) {
  ViewHandle view{identity, {}};
  server.socket().copy(view.socket, sizeof view.socket - 1);
  return view;
}

bool came_right(const ViewHandle& view) {
  const std::vector<ExportedPiece> pieces = request_pieces(view, kLimit);
  if (pieces.size() != view.identity) return false;
  for (uint64_t k = 0; k < pieces.size(); ++k) {
    if (pieces[k].bytes != 100 * view.identity + k || bool(pieces[k].descriptor) != (k % 2 == 0))
      return false;
    if (k % 2 == 0 ? value_in(pieces[k].descriptor) != 1000 * view.identity + k
                   : pieces[k].fabric[63] != uint8_t(view.identity * 16 + k))
      return false;
  }
  return true;
}

// What a child that does `work` exits with.
int in_a_child(const std::function<int()>& work) {
  const pid_t child = fork();
  if (child == 0) _exit(work());
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Descriptors, AnotherProcessGetsThemInOrder) {
  const DescriptorServer server(exported);
  for (const uint64_t identity : {1, 2, 9}) {
    const ViewHandle view = view_of(server, identity);
    EXPECT_EQ(in_a_child([&] { return came_right(view) ? 0 : 1; }), 0) << identity;
  }
}

TEST(Descriptors, ReadersThatAreMany) {
  const DescriptorServer server(exported);
  std::atomic<int> right{0};
  std::vector<std::thread> readers;
  for (int reader = 0; reader < 8; ++reader)
    readers.emplace_back([&, reader] {
      for (int k = 0; k < 20; ++k) right += came_right(view_of(server, 1 + uint64_t(reader + k) % 4));
    });
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(right.load(), 160);
}

TEST(Descriptors, WhatIsGoneIsSaid) {
  const DescriptorServer server(exported);
  for (const uint64_t identity : {5, 7}) {
    try {
      request_pieces(view_of(server, identity), kLimit);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("gone"), std::string::npos) << error.what();
    }
  }
  EXPECT_TRUE(came_right(view_of(server, 3))) << "it answers on";
}

TEST(Descriptors, AnOwnerThatHasDiedIsAnError) {
  ViewHandle view{};
  {
    const DescriptorServer server(exported);
    view = view_of(server, 1);
  }
  EXPECT_THROW(request_pieces(view, kLimit), Error);
}

// Not one that stands still, nor one that says something else.
TEST(Descriptors, WhoTalksNonsenseHoldsNobodyUp) {
  const DescriptorServer server(exported);
  const Descriptor silent(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, server.socket().data(), server.socket().size());
  const auto bytes = socklen_t(offsetof(sockaddr_un, sun_path) + 1 + server.socket().size());
  ASSERT_EQ(connect(silent.get(), reinterpret_cast<const sockaddr*>(&address), bytes), 0);
  EXPECT_TRUE(came_right(view_of(server, 2))) << "once the server has had enough of the silent one";
  ASSERT_EQ(send(silent.get(), "nonsense", 8, MSG_NOSIGNAL) >= -1, true);
  EXPECT_TRUE(came_right(view_of(server, 2)));
}

TEST(Descriptors, NoneIsLeftOpen) {
  const auto open_now = [] {
    int count = 0;
    for (int fd = 0; fd < 1024; ++fd) count += fcntl(fd, F_GETFD) >= 0;
    return count;
  };
  const int before = open_now();
  {
    const DescriptorServer server(exported);
    for (int k = 0; k < 5; ++k) EXPECT_TRUE(came_right(view_of(server, 9)));
  }
  EXPECT_EQ(open_now(), before);
}

TEST(Descriptors, ProcessesOfOneNamespaceKnowIt) {
  const uint32_t own = network_namespace();
  EXPECT_NE(own, 0u);
  EXPECT_EQ(in_a_child([&] { return network_namespace() == own ? 0 : 1; }), 0);
}

}  // namespace
}  // namespace starling
