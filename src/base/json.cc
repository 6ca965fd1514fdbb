#include "base/json.h"

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "base/error.h"

namespace starling {
namespace {

constexpr int kDeepest = 64;

void append_utf8(std::string& text, std::uint32_t code) {
  if (code < 0x80) {
    text += static_cast<char>(code);
    return;
  }
  const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  constexpr std::uint32_t kFirst[] = {0, 0xc0, 0xe0, 0xf0};
  text += static_cast<char>(kFirst[more] | code >> (6 * more));
  for (int k = more - 1; k >= 0; --k) text += static_cast<char>(0x80 | (code >> (6 * k) & 0x3f));
}

}  // namespace

class JsonReader {
 public:
  JsonReader(std::string_view text, const std::string& source) : text_(text), source_(source) {}

  Json whole() {
    Json value = read(0);
    skip_space();
    if (at_ != text_.size()) refuse("something follows the value");
    return value;
  }

 private:
  Json read(int depth) {
    if (depth > kDeepest) refuse("it nests too deep");
    Json json;
    switch (peek()) {
      case '{': json.value_ = object(depth); break;
      case '[': json.value_ = array(depth); break;
      case '"': json.value_ = string(); break;
      case 't': word("true"), json.value_ = true; break;
      case 'f': word("false"), json.value_ = false; break;
      case 'n': word("null"); break;
      default: json.value_ = number();
    }
    return json;
  }

  Json::Object object(int depth) {
    Json::Object members;
    expect('{');
    if (took('}')) return members;
    do {
      peek();
      std::string name = string();
      expect(':');
      members.emplace_back(std::move(name), read(depth + 1));
    } while (took(','));
    expect('}');
    return members;
  }

  Json::Array array(int depth) {
    Json::Array items;
    expect('[');
    if (took(']')) return items;
    do items.push_back(read(depth + 1));
    while (took(','));
    expect(']');
    return items;
  }

  std::string string() {
    if (at_ == text_.size() || text_[at_] != '"') refuse("a text begins with a quotation mark");
    ++at_;
    std::string value;
    for (;;) {
      if (at_ == text_.size() || static_cast<unsigned char>(text_[at_]) < 0x20)
        refuse("a text has no end in its line");
      const char c = text_[at_++];
      if (c == '"') return value;
      if (c != '\\') {
        value += c;
        continue;
      }
      escape(value);
    }
  }

  void escape(std::string& value) {
    constexpr std::string_view kNames = "\"\\/bfnrt";
    constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
    const char c = at_ < text_.size() ? text_[at_++] : '\0';
    if (c == 'u') {
      std::uint32_t code = hex();
      // Of what is beyond 16 bits there are two, the second one low.
      if (code >= 0xd800 && code < 0xdc00 && text_.substr(at_, 2) == "\\u") {
        at_ += 2;
        const std::uint32_t low = hex();
        if (low < 0xdc00 || low > 0xdfff) refuse("half a character");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
      }
      if (code >= 0xd800 && code <= 0xdfff) refuse("half a character");
      return append_utf8(value, code);
    }
    const std::size_t at = kNames.find(c);
    if (c == '\0' || at == std::string_view::npos) refuse("an escape that does not exist");
    value += kMeanings[at];
  }

  std::uint32_t hex() {
    std::uint32_t code = 0;
    const std::string_view digits = text_.substr(at_, 4);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
    if (digits.size() != 4 || error != std::errc() || end != digits.data() + 4)
      refuse("\\u takes four hexadecimal digits");
    at_ += 4;
    return code;
  }

  double number() {
    double value = 0;
    const char* const begin = text_.data() + at_;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
    const bool digit = at_ < text_.size() && (*begin == '-' || (*begin >= '0' && *begin <= '9'));
    if (!digit || error != std::errc()) refuse("a value is missing, or none that JSON has");
    at_ += static_cast<std::size_t>(end - begin);
    return value;
  }

  void word(std::string_view expected) {
    if (text_.substr(at_, expected.size()) != expected) refuse("a word that JSON does not have");
    at_ += expected.size();
  }

  void skip_space() { at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size()); }
  // The next character that is no space; '\0': there is none.
  char peek() {
    skip_space();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool took(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!took(c)) refuse(std::string("there should be a '") + c + "'");
  }

  [[noreturn]] void refuse(const std::string& what) const {
    const auto line = 1 + std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(at_), '\n');
    throw Error(Code::invalid_argument, source_ + ", line " + std::to_string(line) + " is no JSON: " + what);
  }

  const std::string_view text_;
  const std::string& source_;
  std::size_t at_ = 0;
};

Json Json::parse(std::string_view text, const std::string& source) {
  return JsonReader(text, source).whole();
}

const Json* Json::member(std::string_view name) const {
  const auto* const members = std::get_if<Object>(&value_);
  if (members == nullptr) return nullptr;
  const auto found =
      std::find_if(members->begin(), members->end(), [&](const auto& one) { return one.first == name; });
  return found == members->end() ? nullptr : &found->second;
}

}  // namespace starling
