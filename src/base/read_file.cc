#include "base/read_file.h"

#include <filesystem>
#include <fstream>

#include "base/error.h"

namespace starling {
namespace {

constexpr std::uintmax_t kMostBytes = 64 << 20;

}  // namespace

std::string read_file(const std::string& path, const std::string& what, const std::string& remedy) {
  const auto refuse = [&](const std::string& why) {
    throw Error(Code::system, what + " '" + path + "' cannot be read: " + why, remedy);
  };
  std::error_code error;
  const auto kind = std::filesystem::status(path, error).type();
  if (kind == std::filesystem::file_type::not_found) refuse("it is not there");
  if (error) refuse(error.message());
  if (kind != std::filesystem::file_type::regular) refuse("it is not a regular file");
  const std::uintmax_t bytes = std::filesystem::file_size(path, error);
  if (error) refuse(error.message());
  if (bytes > kMostBytes) refuse("it is larger than 64 MiB");
  std::string text(bytes, '\0');
  std::ifstream file(path, std::ios::binary);
  if (!file.read(text.data(), std::streamsize(bytes))) refuse("its bytes cannot be had");
  return text;
}

}  // namespace starling
